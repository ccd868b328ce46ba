//go:build servers

package web

import (
	"testing"
)

// The dialog of a run has a field that fits the type of each parameter, and says what is missing.
func TestTheDialogOfARunFitsTheTypesOfItsParameters(t *testing.T) {
	t.Parallel()
	pages(t)
	apply(t, `namespace: typed
name: charge
title: 价格导入
params:
  region: {title: Region, type: enum, values: [eu, us], default: eu}
  zone: {type: enum, values: [a, b, c, d, e, f]}
  day: {type: date, min: 2026-01-01, required: true, description: The day to charge.}
  at: {type: datetime, default: 2026-10-01T07:00:00Z}
  rows: {type: int, default: 1000, min: 1, max: 50000}
  dry: {type: bool}
  branch: {pattern: "main|v[0-9]+", default: main}
run: {shell: "env | grep BELFRY_PARAM | sort"}
`)
	b := newTab(t)
	b.looks("light", "en")
	for _, width := range []int64{390, 1440} {
		b.width(width)
		b.open("/jobs/typed/charge")
		b.press(`document.querySelector("details:has(form[action$='/run']) > summary")`)
		b.until("the dialog", `document.getElementById("param-day").checkVisibility()`)
		if n := value[int64](b, `document.documentElement.scrollWidth`); n > width {
			t.Errorf("the dialog makes the page %d px wide at %d", n, width)
		}
	}
	const kinds = `[...document.querySelectorAll("form[action$='/run'] [id^=param-]")].map(f => f.id.slice(6) + ":" + (f.nextElementSibling?.matches(".seg") ? [...f.nextElementSibling.querySelectorAll("label")].map(l => l.textContent).join("|") : f.localName === "select" ? f.options.length : f.type + "=" + f.value + (f.required ? "!" : ""))).join(" ")`
	if got, want := value[string](b, kinds), "at:datetime-local=2026-10-01T09:00 branch:text=main day:date=! dry:none|Yes|No region:eu|us rows:number=1000 zone:7"; got != want {
		t.Errorf("the fields are %q, want %q", got, want)
	}
	if value[bool](b, `document.querySelector("form[action$='/run']").checkValidity()`) {
		t.Error("the form is complete without the day")
	}
	b.types("param-day", "2026-11-28")
	b.types("param-branch", "dev")
	b.press(`[...document.querySelectorAll("form[action$='/run'] .seg label")].find(l => l.textContent === "Yes").querySelector("input")`)
	b.press(`document.querySelector("form[action$='/run'] button.primary")`)
	b.until("the mistake", `document.body.innerText.includes('"dev" does not match main|v[0-9]+')`)
	b.open("/jobs/typed/charge")
	b.press(`document.querySelector("details:has(form[action$='/run']) > summary")`)
	b.types("param-day", "2026-11-28")
	b.press(`document.querySelector("form[action$='/run'] button.primary")`)
	b.until("the values in the output", `["AT=2026-10-01T09:00:00+02:00", "BRANCH=main", "DAY=2026-11-28", "DRY=", "REGION=eu", "ROWS=1000", "ZONE="].every(v => [...document.querySelectorAll("[data-log] .x")].some(x => x.textContent === "BELFRY_PARAM_" + v))`)
	b.press(`[...document.querySelectorAll(".head summary")].find(s => s.textContent === "Run with other parameters")`)
	b.until("its values in the dialog", `document.getElementById("param-day").value === "2026-11-28"`)
	for _, theme := range []string{"light", "dark"} {
		b.open("/jobs/typed/charge")
		b.press(`document.querySelector("details:has(form[action$='/run']) > summary")`)
		b.until("the dialog", `document.getElementById("param-day").checkVisibility()`)
		b.obeys(allRules, theme, "the dialog of a run")
	}
}
