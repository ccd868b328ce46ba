package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Processes read the clock without a call of the kernel, from code that the kernel puts into each of them, the vDSO. A step of the
// clock of one process replaces that code, so it needs no library and works for static programs, and what the process executes has
// the clock of the machine again.

// The functions of the vDSO that tell the time, in the machine code of amd64: each makes the real call, and adds the seconds in the 8
// bytes whose distance stands in the four zeros.
var clockCode = []struct {
	name string
	code []byte
	hole int // where the distance stands
}{
	// clock_gettime(edi, rsi), for CLOCK_REALTIME and CLOCK_REALTIME_COARSE.
	{"__vdso_clock_gettime", []byte{
		0xb8, 228, 0, 0, 0, 0x0f, 0x05, // mov eax, 228; syscall
		0x85, 0xc0, 0x75, 0x13, // test eax, eax; jne ret
		0x85, 0xff, 0x74, 0x05, // test edi, edi; je shift
		0x83, 0xff, 5, 0x75, 0x0a, // cmp edi, 5; jne ret
		0x48, 0x8b, 0x0d, 0, 0, 0, 0, // shift: mov rcx, [rip+…]
		0x48, 0x01, 0x0e, 0xc3, // add [rsi], rcx; ret
	}, 23},
	// gettimeofday(rdi, rsi)
	{"__vdso_gettimeofday", []byte{
		0xb8, 96, 0, 0, 0, 0x0f, 0x05, // mov eax, 96; syscall
		0x85, 0xc0, 0x75, 0x0f, // test eax, eax; jne ret
		0x48, 0x85, 0xff, 0x74, 0x0a, // test rdi, rdi; je ret
		0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [rip+…]
		0x48, 0x01, 0x0f, 0xc3, // add [rdi], rcx; ret
	}, 19},
	// time(rdi)
	{"__vdso_time", []byte{
		0x57, 0x31, 0xff, 0xb8, 201, 0, 0, 0, 0x0f, 0x05, 0x5f, // push rdi; xor edi, edi; mov eax, 201; syscall; pop rdi
		0x48, 0x8b, 0x0d, 0, 0, 0, 0, 0x48, 0x01, 0xc8, // mov rcx, [rip+…]; add rax, rcx
		0x48, 0x85, 0xff, 0x74, 0x03, // test rdi, rdi; je ret
		0x48, 0x89, 0x07, 0xc3, // mov [rdi], rax; ret
	}, 14},
}

// A clock is that of one process.
type clock struct {
	from, seconds int64 // where its vDSO is, and the step in it
}

// step makes the clock of a process differ from that of the machine by whole seconds.
func (c *clock) step(pid int, by time.Duration) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return errors.New("only on linux/amd64")
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	from, to, err := vdso(pid)
	if err != nil {
		return err
	}
	if c.from != from { // each process, and each program that it executes, has it elsewhere
		if c.seconds, err = replaceClock(pid, memory, from, to); err != nil {
			return err
		}
		c.from = from
	}
	var text [8]byte
	binary.LittleEndian.PutUint64(text[:], uint64(int64(by/time.Second)))
	_, err = memory.WriteAt(text[:], c.seconds)
	return err
}

// replaceClock puts the code into a process, and returns where the seconds stand that it adds.
func replaceClock(pid int, memory *os.File, from, to int64) (int64, error) {
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, from); err != nil {
		return 0, err
	}
	// The last page has room behind the image, which is zero.
	room := 8
	for _, f := range clockCode {
		room += len(f.code)
	}
	free := (len(image) - room) &^ 7
	if free < 0 || bytes.Trim(image[free:], "\x00") != nil {
		return 0, errors.New("the kernel's vDSO has no room for it")
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	entries := map[string]int64{}
	for _, s := range symbols {
		entries[s.Name] = int64(s.Value)
	}
	seconds := int64(free)
	code := make([]byte, 8, room) // the seconds, and then the functions
	starts := map[string]int64{}
	for _, f := range clockCode {
		if entries[f.name] == 0 {
			return 0, fmt.Errorf("the kernel's vDSO has no %s", f.name)
		}
		starts[f.name] = seconds + int64(len(code))
		own := bytes.Clone(f.code)
		binary.LittleEndian.PutUint32(own[f.hole:], uint32(int32(seconds-starts[f.name]-int64(f.hole)-4)))
		code = append(code, own...)
	}
	return from + seconds, whileOutside(pid, from, to, func() error {
		if _, err := memory.WriteAt(code, from+seconds); err != nil {
			return err
		}
		for name, start := range starts {
			const length = 5
			jump := [length]byte{0xe9}
			binary.LittleEndian.PutUint32(jump[1:], uint32(int32(start-entries[name]-length)))
			if _, err := memory.WriteAt(jump[:], from+entries[name]); err != nil {
				return err
			}
		}
		return nil
	})
}

// vdso returns where the kernel's code is in the memory of a process.
func vdso(pid int) (from, to int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, errors.New("the process has no vDSO")
}

// whileOutside stops a process while none of its threads is in a part of its memory.
func whileOutside(pid int, from, to int64, do func() error) error {
	const tries = 200 // a thread is there for some 30 ns of each call
	for range tries {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		outside := isOutside(pid, from, to)
		var err error
		if outside {
			err = do()
		}
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil || outside {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the process did not stop outside of its clock")
}

// isOutside reports whether all threads stand still elsewhere.
func isOutside(pid int, from, to int64) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, file := range threads {
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if _, state, _ := strings.Cut(string(stat), ") "); err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
		text, err := os.ReadFile(file)
		words := strings.Fields(string(text)) // the last one is the address of the next instruction
		if err != nil || len(words) < 3 {
			return false
		}
		at, err := strconv.ParseInt(strings.TrimPrefix(words[len(words)-1], "0x"), 16, 64)
		if err != nil || at >= from && at < to {
			return false
		}
	}
	return true
}
