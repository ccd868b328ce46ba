package job

import (
	"strconv"
	"strings"
	"time"
)

// Usage is what an attempt used of its machine. A field is absent if the system does not report it;
// the zero value is for attempts without any report.
type Usage struct {
	CPUSeconds   float64 `json:"cpu_seconds,omitempty" minimum:"0" maximum:"1000000000" doc:"The processor time of its processes, of all processors together, in seconds."`
	MemoryBytes  int64   `json:"memory_bytes,omitempty" minimum:"0" maximum:"1000000000000000" doc:"The most memory: of the largest process of a command, or of all processes of a container together."`
	MemoryAtMost bool    `json:"memory_at_most,omitempty" doc:"The system knows only that it was memory_bytes or less."`
	ReadBytes    *int64  `json:"read_bytes,omitempty" minimum:"0" maximum:"1000000000000000" doc:"How much was read from disks; data in the page cache of the system do not count."`
	WrittenBytes *int64  `json:"written_bytes,omitempty" minimum:"0" maximum:"1000000000000000" doc:"How much was written to disks."`
}

// CPU returns the processor time.
func (u *Usage) CPU() time.Duration {
	return time.Duration(u.CPUSeconds * float64(time.Second)).Round(time.Microsecond)
}

// Over reports whether the usage is certainly not below limits, of which 0 is none.
func (u *Usage) Over(memory Size, cpu time.Duration) (overMemory, overCPU bool) {
	return memory > 0 && u.MemoryBytes >= int64(memory) && !u.MemoryAtMost, cpu > 0 && u.CPU() >= cpu
}

// Stored returns the form that stores keep, "" for the zero value: microseconds of processor time,
// bytes of memory, after < if that is a bound, and bytes read and written, separated by commas.
func (u *Usage) Stored() string {
	if *u == (Usage{}) {
		return ""
	}
	b := strconv.AppendInt(make([]byte, 0, 48), u.CPU().Microseconds(), 10)
	b = append(b, ',')
	if u.MemoryAtMost {
		b = append(b, '<')
	}
	b = strconv.AppendInt(b, u.MemoryBytes, 10)
	for _, n := range []*int64{u.ReadBytes, u.WrittenBytes} {
		if b = append(b, ','); n != nil {
			b = strconv.AppendInt(b, *n, 10)
		}
	}
	return string(b)
}

// StoredUsage reads the stored form; an unreadable one is none.
func StoredUsage(text string) (u Usage) {
	parts := strings.Split(text, ",")
	if len(parts) != storedUsageParts {
		return u
	}
	readable := true
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		readable = readable && err == nil
		return n
	}
	maybe := func(text string) *int64 {
		if text == "" {
			return nil
		}
		return new(number(text))
	}
	u.CPUSeconds = (time.Duration(number(parts[0])) * time.Microsecond).Seconds()
	parts[1], u.MemoryAtMost = strings.CutPrefix(parts[1], "<")
	u.MemoryBytes, u.ReadBytes, u.WrittenBytes = number(parts[1]), maybe(parts[2]), maybe(parts[3])
	if !readable {
		return Usage{}
	}
	return u
}

const storedUsageParts = 4
