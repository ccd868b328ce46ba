package verdict_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/job"
)

func TestMatchesAreFoundInAnyPieces(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("line of output\n", 20_000)
	for _, c := range []struct {
		match, output string
		want          bool
	}{
		{"x", "", false}, {"^$", "", true}, {"x", "x", true}, {"^b$", "a\nb\nc\n", true}, {"^b", "ab\n", false},
		{"done$", long + "done\n", true}, {"^done$", "done\n" + long, true}, {"^done$", long + "done\n" + long, true},
		{"^done$", long + "not done\n" + long, false}, {"^ne of", long, false}, {"line o$", long, false},
		{"a\nb", long + "a\nb" + long, true}, {"zz", strings.Repeat("y", 300_000) + "zz", true},
	} {
		for _, piece := range []int{1, 7, 4096, 32 << 10, 1 << 20} {
			if piece < 100 && len(c.output) > 1000 {
				piece += 1000
			}
			m, err := verdict.NewMatcher(&job.Success{Match: c.match})
			if err != nil {
				t.Fatal(err)
			}
			s := m.Stream(0)
			for rest := []byte(c.output); len(rest) > 0; {
				n := min(piece, len(rest))
				s.Write(rest[:n])
				rest = rest[n:]
			}
			m.End()
			if m.OK() != c.want {
				t.Errorf("%q in %d bytes by %d: %v, want %v", c.match, len(c.output), piece, m.OK(), c.want)
			}
		}
	}
}
