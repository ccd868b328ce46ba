package cron

import "fmt"

// Warnings returns allowed but probably unintended parts of an expression: steps beyond
// their field, and in the default dialect the form of Quartz, which numbers days of the
// week differently. It returns none for an expression that Parse refuses.
func Warnings(expr string, opts ...Option) []string {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	var warnings []string
	p := parser{expr: expr, dialect: o.dialect, job: o.job, field: noField, warnings: &warnings}
	if p.parse(&Expression{zone: o.zone.orUTC(), dialect: o.dialect}, o.zone) != nil {
		return nil
	}
	return warnings
}

const quartzWarning = `"?" with seconds is the form of Quartz expressions, in which day of week 1 is Sunday; here 1 is Monday. ` +
	"The dialect quartz reads it as Quartz does"

// warnOfStep warns of a step after which no value of the field is left.
func (p *parser) warnOfStep(n int) {
	spec := &specs[p.field]
	values := spec.max - spec.min + 1
	if p.warnings == nil || n < values {
		return
	}
	text := fmt.Sprintf("%s: a step of %d in a field of %d values matches the start only", spec.name, n, values)
	if unit := map[int]string{secondField: "s", minuteField: "m", hourField: "h"}[p.field]; unit != "" && n > values {
		text += fmt.Sprintf("; for a fixed interval write every: %d%s", n, unit)
	}
	*p.warnings = append(*p.warnings, text)
}
