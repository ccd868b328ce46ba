// Package cronbench measures Belfry's cron expressions beside other libraries in one run,
// and checks their answers against the vectors of package cron. It is a separate module, so that no
// program that uses Belfry depends on these libraries.
package cronbench

import (
	"fmt"
	"strings"
	"time"

	"github.com/adhocore/gronx"
	gorhill "github.com/gorhill/cronexpr"
	hashicorp "github.com/hashicorp/cronexpr"
	"github.com/reugn/go-quartz/quartz"
	robfig "github.com/robfig/cron/v3"

	"github.com/belfry-cron/belfry/cron"
)

// Search finds the first occurrence after an instant; the zero time is never. The
// instant comes in the zone of the expression.
type Search func(time.Time) time.Time

// Library is a compared library.
type Library struct {
	Name   string
	Module string // as in go.mod
	// Dialect is the grammar of its vectors.
	Dialect string
	// Compile parses an expression of five fields, or in the quartz dialect
	// one with seconds.
	Compile func(expr string, zone *cron.Zone) (Search, error)
	// ParseOnly is false where parsing cannot be measured alone.
	ParseOnly bool
}

// Libraries returns the compared libraries, Belfry first.
func Libraries() []Library {
	return []Library{
		{"Belfry", "", "vixie5", compileBelfry, true},
		{"robfig/cron", "github.com/robfig/cron/v3", "vixie5", compileRobfig, true},
		{"gorhill/cronexpr", "github.com/gorhill/cronexpr", "vixie5", compileGorhill, true},
		{"hashicorp/cronexpr", "github.com/hashicorp/cronexpr", "vixie5", compileHashicorp, true},
		{"adhocore/gronx", "github.com/adhocore/gronx", "vixie5", compileGronx, false},
		{"reugn/go-quartz", "github.com/reugn/go-quartz", "quartz", compileQuartz, true},
	}
}

func compileBelfry(expr string, zone *cron.Zone) (Search, error) {
	e, err := cron.Parse(expr, cron.In(zone))
	if err != nil {
		return nil, err
	}
	return e.Next, nil
}

func compileRobfig(expr string, _ *cron.Zone) (Search, error) {
	s, err := robfig.ParseStandard(expr)
	if err != nil {
		return nil, err
	}
	return s.Next, nil
}

func compileGorhill(expr string, _ *cron.Zone) (Search, error) {
	e, err := gorhill.Parse(expr)
	if err != nil {
		return nil, err
	}
	return e.Next, nil
}

func compileHashicorp(expr string, _ *cron.Zone) (Search, error) {
	e, err := hashicorp.Parse(expr)
	if err != nil {
		return nil, err
	}
	return e.Next, nil
}

// compileGronx only checks: gronx has no compiled form and parses in each search.
func compileGronx(expr string, _ *cron.Zone) (Search, error) {
	if !gronx.IsValid(expr) {
		return nil, fmt.Errorf("%q is not valid", expr)
	}
	return func(at time.Time) time.Time {
		next, err := gronx.NextTickAfter(expr, at, false)
		if err != nil {
			return time.Time{}
		}
		return next
	}, nil
}

func compileQuartz(expr string, zone *cron.Zone) (Search, error) {
	if len(strings.Fields(expr)) == 5 {
		var err error
		if expr, err = forQuartz(expr); err != nil {
			return nil, err
		}
	}
	trigger, err := quartz.NewCronTriggerWithLoc(expr, zone.Location())
	if err != nil {
		return nil, err
	}
	return func(at time.Time) time.Time {
		next, err := trigger.NextFireTime(at.UnixNano())
		if err != nil {
			return time.Time{}
		}
		return time.Unix(0, next).In(zone.Location())
	}, nil
}

// forQuartz converts a measured expression to Quartz: with seconds, a "?" and days of the week from
// 1.
func forQuartz(expr string) (string, error) {
	fields := strings.Fields(expr)
	switch day, weekday := fields[2], fields[4]; {
	case weekday == "*":
		fields[4] = "?"
	case day == "*" && weekday == "1-5":
		fields[2], fields[4] = "?", "2-6"
	default:
		return "", fmt.Errorf("%q is not translated", expr)
	}
	return "0 " + strings.Join(fields, " "), nil
}
