// Package ownclock builds programs with a wall clock of their own: [time.Now] has one line more, and the
// monotonic clock stays the machine's, as when a person sets the wall clock.
package ownclock

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Variable names a file with the nanoseconds by which the wall clock of a program differs from the machine's.
const Variable = "BELFRY_TEST_CLOCK"

// Flags returns the flags of go build that make such a program. They name files in a directory.
func Flags(dir string) ([]string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return nil, err
	}
	const reads = "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	before, after, found := strings.Cut(string(text), reads)
	if !found {
		return nil, errors.New("time.Now of this Go is another: the line that moves the clock has to be put somewhere else")
	}
	files := map[string]string{
		"time.go": before + reads + "\tsec, nsec = moved(sec, nsec)\n" + after,
		// The file is mapped, because the runtime asks for the time where no
		// system call may be made.
		"moved.go": `package time

import (
	"syscall"
	"unsafe"
)

var mapped = mapMoved()

func mapMoved() *int64 {
	name, ok := syscall.Getenv("` + Variable + `")
	if !ok {
		return nil
	}
	fd, err := open(name)
	if err != nil {
		panic(err)
	}
	data, err := syscall.Mmap(int(fd), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&data[0]))
}

func moved(sec int64, nsec int32) (int64, int32) {
	if mapped == nil {
		return sec, nsec
	}
	all := *mapped + int64(nsec)
	sec += all / 1e9
	if all %= 1e9; all < 0 {
		sec, all = sec-1, all+1e9
	}
	return sec, int32(all)
}
`,
	}
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(dir, "time-"+name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(source, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return nil, err
	}
	return []string{"-overlay", list}, nil
}

// Set makes the clock of the programs that read the file differ from the machine's by a duration.
func Set(path string, by time.Duration) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(binary.Write(file, binary.NativeEndian, int64(by)), file.Close())
}
