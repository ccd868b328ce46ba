package cron_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

func Example() {
	zone, err := cron.LoadZone("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := cron.Parse("30 2 * * 1-5", cron.In(zone))
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 3 {
		at = e.Next(at)
		fmt.Println(at)
	}
	// Output:
	// 2026-11-23 02:30:00 +0100 CET
	// 2026-11-24 02:30:00 +0100 CET
	// 2026-11-25 02:30:00 +0100 CET
}

func ExampleParse_mistake() {
	_, err := cron.Parse("0 9 * * MON-FIR")
	fmt.Println(err)

	var mistake *cron.ParseError
	if errors.As(err, &mistake) {
		fmt.Println(mistake.Field, "from byte", mistake.Pos, "on:", mistake.Hint)
	}
	// Output:
	// day of week: "FIR" is not a number or a name, allowed is 0-7 or SUN-SAT (at position 13 of "0 9 * * MON-FIR"); did you mean FRI?
	// day of week from byte 12 on: did you mean FRI?
}

func ExampleParse_zone() {
	e, err := cron.Parse("TZ=Asia/Shanghai 0 9 * * MON-FRI")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Zone(), e.Next(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)).Format(time.RFC3339))
	// Output: Asia/Shanghai 2026-11-23T09:00:00+08:00
}

func ExampleWithDialect() {
	e, err := cron.Parse("0 0 12 ? * 6#2", cron.WithDialect(cron.Quartz)) // the second Friday
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Next(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)).Format(time.RFC3339))
	// Output: 2026-12-11T12:00:00Z
}

// The spring night in which 02:30 does not exist in Berlin.
func ExampleWithClockChange() {
	zone, err := cron.LoadZone("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	before := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for rule := cron.Vixie; rule <= cron.SkipLast; rule++ {
		e, err := cron.Parse("30 2 * * *", cron.In(zone), cron.WithClockChange(rule))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-10s %s\n", rule, e.Next(before).Format(time.RFC3339))
	}
	// Output:
	// vixie      2026-03-29T03:00:00+02:00
	// literal    2026-03-30T02:30:00+02:00
	// skip_once  2026-03-30T02:30:00+02:00
	// shift_once 2026-03-29T03:30:00+02:00
	// skip_last  2026-03-30T02:30:00+02:00
}

// H spreads jobs over time: each has its own minute, the same on every node.
func ExampleWithJob() {
	for _, name := range []string{"backup", "report", "cleanup"} {
		e, err := cron.Parse("H 3 * * *", cron.WithJob("default", name))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(name, "runs at", e)
	}
	// Output:
	// backup runs at 15 3 * * *
	// report runs at 59 3 * * *
	// cleanup runs at 38 3 * * *
}

func ExampleExpression_Prev() {
	e, err := cron.Parse("0 0 L * *") // the last day of the month
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Prev(time.Date(2028, 3, 1, 0, 0, 0, 0, time.UTC)).Format(time.DateOnly))
	// Output: 2028-02-29
}

func ExampleExpression_String() {
	for _, expr := range []string{"0 0 0 ? * mon,tue,wed,thu,fri", "00,15,30,45 * * * *", "@weekly"} {
		e, err := cron.Parse(expr)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e)
	}
	// Output:
	// 0 0 * * 1-5
	// */15 * * * *
	// 0 0 * * 0
}

func ExampleExpression_NeverReason() {
	e, err := cron.Parse("0 0 30 2 *")
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	fmt.Println(e.Next(now).IsZero(), e.NeverReason(now))
	// Output: true February has no day 30
}

func ExampleLoadZone_mistake() {
	_, err := cron.LoadZone("Europe/Belrin")
	fmt.Println(err)
	// Output: unknown time zone "Europe/Belrin": did you mean "Europe/Berlin"?
}
