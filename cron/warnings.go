package cron

import (
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Warnings returns allowed but probably unintended parts of an expression: steps beyond
// their field, zones such as EST that have no summer time, and in the default dialect the
// form of Quartz, which numbers days of the week differently. It returns none for an expression that [Parse] refuses.
func Warnings(expr string, opts ...Option) (list []string) {
	for _, w := range WarningTexts(expr, opts...) {
		list = append(list, w.String())
	}
	return list
}

// WarningTexts is [Warnings] as codes with arguments.
func WarningTexts(expr string, opts ...Option) []phrase.Text {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	var warnings []phrase.Text
	p := parser{expr: expr, dialect: o.dialect, job: o.job, field: noField, warnings: &warnings}
	e := Expression{zone: o.zone.orUTC(), dialect: o.dialect}
	if p.parse(&e, o.zone) != nil {
		return nil
	}
	return append(warnings, e.zone.warnings()...)
}

// warnings warns of a name that people read as another zone.
func (z *Zone) warnings() []phrase.Text {
	switch name := z.Name(); name {
	case "EST":
		return []phrase.Text{phrase.ZoneFixed.Of(name, "UTC-5", "America/New_York")}
	case "MST":
		return []phrase.Text{phrase.ZoneFixed.Of(name, "UTC-7", "America/Denver")}
	default:
		offset, fixed := strings.CutPrefix(name, fixedZone)
		if !fixed || strings.Trim(offset, "+-0") == "" {
			return nil
		}
		return []phrase.Text{phrase.ZoneReversed.Of(name, "UTC"+strings.NewReplacer("+", "-", "-", "+").Replace(offset))}
	}
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
