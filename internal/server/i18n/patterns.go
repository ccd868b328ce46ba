package i18n

import (
	"regexp"
	"strings"
)

// translation is a text in English and Chinese. {x} is a value that stays as it is, {x*} one that
// is translated in turn. The first pattern that fits counts, so what is special stands before what
// is general.
type translation struct{ en, zh string }

type pattern struct {
	translation
	begins  string // with which a text that fits begins
	pattern *regexp.Regexp
	names   []string
}

var placeholder = regexp.MustCompile(`\{([a-z]+\*?)\}`)

// compile makes patterns. A value that is translated in turn may have any text, and another
// none that goes over a line.
func compile(texts []translation) []pattern {
	list := make([]pattern, 0, len(texts))
	for _, r := range texts {
		c := pattern{translation: r}
		c.begins, _, _ = strings.Cut(r.en, "{")
		text, last := "^", 0
		for _, at := range placeholder.FindAllStringSubmatchIndex(r.en, -1) {
			text += regexp.QuoteMeta(r.en[last:at[0]])
			name := r.en[at[2]:at[3]]
			c.names = append(c.names, name)
			if last = at[1]; strings.HasSuffix(name, "*") {
				text += `(?s:(.+?))`
			} else {
				text += `(.+?)`
			}
		}
		c.pattern = regexp.MustCompile(text + regexp.QuoteMeta(r.en[last:]) + "$")
		list = append(list, c)
	}
	return list
}

const (
	// patternDepth bounds texts within texts.
	patternDepth = 4
	// patternMax is how long a text may be to be translated: what is longer is output of programs.
	patternMax = 2000
)

// duration is how job.Duration says itself in words, for the value {d}.
var duration = regexp.MustCompile(`^\d+(\.\d+)? (d|h|min|s|ms|µs|ns)( \d+(\.\d+)? (h|min|s|ms|µs))*$`)

var chineseUnits = strings.NewReplacer(" ms", " 毫秒", " min", " 分钟", " d", " 天", " h", " 小时", " s", " 秒")

func (l Lang) translated(by []pattern, text string, depth int) string {
	if depth == 0 {
		return text
	}
	for _, r := range by {
		if !strings.HasPrefix(text, r.begins) {
			continue
		}
		found := r.pattern.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		said := r.en
		if l == Chinese {
			said = r.zh
		}
		pairs := make([]string, 0, 2*len(r.names))
		for i, name := range r.names {
			value := found[i+1]
			if strings.HasSuffix(name, "*") {
				value = l.translated(by, value, depth-1)
			} else if l == Chinese && name == "d" && duration.MatchString(value) {
				value = chineseUnits.Replace(value)
			}
			pairs = append(pairs, "{"+name+"}", value)
		}
		return strings.NewReplacer(pairs...).Replace(said)
	}
	return text
}
