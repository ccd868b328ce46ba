package cronbench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Report measures, checks and writes the result in Markdown.
func Report(w io.Writer, vectors Vectors, effort Effort) error {
	libraries, cases := Libraries(), Cases()
	next, err := Next(libraries, cases, effort)
	if err != nil {
		return err
	}
	parse, err := Parse(libraries, effort)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	writeConditions(out, libraries, effort)

	fmt.Fprintf(out, "\n### `Next`: nanoseconds, and how many times Belfry's\n")
	zone := ""
	for row, c := range cases {
		if c.Zone != zone {
			zone = c.Zone
			writeHeader(out, "in "+zone, libraries)
		}
		writeRow(out, fmt.Sprintf("%s `%s`", c.Name, c.Expr), next[row])
	}
	fmt.Fprintf(out, "\n### `Parse`: nanoseconds, and how many times Belfry's\n")
	writeHeader(out, "expression", libraries)
	for row, shape := range shapes {
		writeRow(out, fmt.Sprintf("%s `%s`", shape.name, shape.expr), parse[row])
	}

	fmt.Fprintf(out, "\n### Answers that agree with the vectors\n")
	for _, part := range Parts() {
		fmt.Fprintf(out, "\n| %s | right | wrong | refused | panics | hangs |\n|---|--:|--:|--:|--:|--:|\n", part.Name)
		for _, library := range libraries {
			score, err := Check(library, vectors, part)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %s (%s) | %d of %d | %d | %d | %d | %d |\n",
				library.Name, library.Dialect, score.Right, score.Total(), score.Wrong, score.Refused, score.Panics, score.Hangs)
			if library.Name == "Belfry" && score.Right != score.Total() {
				return fmt.Errorf("belfry is wrong about %d of %d vectors", score.Total()-score.Right, score.Total())
			}
		}
	}
	return out.Flush()
}

func writeHeader(w io.Writer, first string, libraries []Library) {
	fmt.Fprintf(w, "\n| %s |", first)
	for _, library := range libraries {
		fmt.Fprintf(w, " %s |", library.Name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("--:|", len(libraries)))
}

// writeRow writes the times of a case, and marks times with other answers.
func writeRow(w io.Writer, name string, cells []Timing) {
	fmt.Fprintf(w, "| %s |", name)
	for i, cell := range cells {
		switch {
		case cell.Median == 0:
			fmt.Fprint(w, " — |")
			continue
		case i == 0:
			fmt.Fprintf(w, " **%s** |", nanoseconds(cell.Median))
			continue
		}
		fmt.Fprintf(w, " %s (%s×)", nanoseconds(cell.Median), ratio(cell.Median, cells[0].Median))
		if cell.Different > 0 {
			fmt.Fprintf(w, " ≠%d", cell.Different)
		}
		fmt.Fprint(w, " |")
	}
	fmt.Fprintln(w)
}

// nanoseconds writes a time with a comma for each thousand.
func nanoseconds(d time.Duration) string {
	digits := fmt.Sprint(d.Nanoseconds())
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func ratio(a, b time.Duration) string {
	r := float64(a) / float64(b)
	if r < 9.95 {
		return fmt.Sprintf("%.1f", r)
	}
	return nanoseconds(time.Duration(r + 0.5))
}

// writeConditions writes where and with what the figures were measured.
func writeConditions(w io.Writer, libraries []Library, effort Effort) {
	fmt.Fprintf(w, "%s, %d cores, %s, %s/%s. Medians of %d interleaved rounds.\n",
		processor(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, effort.Rounds)
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			versions[dependency.Path] = dependency.Version
		}
	}
	var names []string
	for _, library := range libraries[1:] {
		if version := versions[library.Module]; version != "" {
			names = append(names, library.Name+" "+version)
		}
	}
	fmt.Fprintf(w, "Beside %s.\n", strings.Join(names, ", "))
}

// processor returns the name of the processor, if the system has it.
func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}
