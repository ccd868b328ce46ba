package cron

import (
	"strconv"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Warnings returns allowed but probably unintended parts of an expression: steps beyond
// their field, and in the default dialect the form of Quartz, which numbers days of the
// week differently. It returns none for an expression that Parse refuses.
func Warnings(expr string, opts ...Option) (list []string) {
	for _, w := range WarningTexts(expr, opts...) {
		list = append(list, w.String())
	}
	return list
}

// WarningTexts is Warnings as codes with arguments.
func WarningTexts(expr string, opts ...Option) []phrase.Text {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	var warnings []phrase.Text
	p := parser{expr: expr, dialect: o.dialect, job: o.job, field: noField, warnings: &warnings}
	if p.parse(&Expression{zone: o.zone.orUTC(), dialect: o.dialect}, o.zone) != nil {
		return nil
	}
	return warnings
}

// warnOfStep warns of a step that is too large for a second value.
func (p *parser) warnOfStep(n int) {
	spec := &specs[p.field]
	values := spec.max - spec.min + 1
	if p.warnings == nil || n < values {
		return
	}
	every := ""
	if unit := map[int]string{secondField: "s", minuteField: "m", hourField: "h"}[p.field]; unit != "" && n > values {
		every = strconv.Itoa(n) + unit
	}
	*p.warnings = append(*p.warnings, phrase.StepTooLong.Of(spec.name, n, values, every))
}
