// Package dkron turns jobs of Dkron into jobs of Belfry. It reads the JSON of Dkron's API, and neither
// files nor a server.
package dkron

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/job"
)

// Options are what jobs do not say.
type Options struct {
	// Zone is the time zone of the Dkron servers, which jobs without timezone mean.
	Zone string
}

// theirs is a job as Dkron's API has it.
type theirs struct {
	Name           string                       `json:"name"`
	DisplayName    string                       `json:"displayname"`
	Timezone       string                       `json:"timezone"`
	Schedule       string                       `json:"schedule"`
	Owner          string                       `json:"owner"`
	OwnerEmail     string                       `json:"owner_email"`
	Disabled       bool                         `json:"disabled"`
	Tags           map[string]string            `json:"tags"`
	Metadata       map[string]string            `json:"metadata"`
	Retries        int                          `json:"retries"`
	ParentJob      string                       `json:"parent_job"`
	Concurrency    string                       `json:"concurrency"`
	Processors     map[string]map[string]string `json:"processors"`
	Executor       string                       `json:"executor"`
	ExecutorConfig map[string]string            `json:"executor_config"`
	Ephemeral      bool                         `json:"ephemeral"`
	StartsAt       any                          `json:"starts_at"`
	ExpiresAt      any                          `json:"expires_at"`
}

// Import reads the answer of GET /v1/jobs, or one job of it. A line is a job; its number is the place
// in the list.
func Import(text string, opt Options) ([]crontab.Line, error) {
	var list []theirs
	data := bytes.TrimSpace([]byte(text))
	if len(data) > 0 && data[0] == '{' {
		data = append(append([]byte("["), data...), ']')
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("it is not what GET /v1/jobs of Dkron answers: %w", err)
	}
	lines := make([]crontab.Line, len(list))
	names := map[string]string{}
	for n := range list {
		t := &list[n]
		line := &lines[n]
		line.Number, line.Text = n+1, t.Name+"  "+t.Schedule
		name := nameOf(t.Name)
		if other, there := names[name]; there {
			line.Problem = fmt.Sprintf("its name becomes %s, as that of %q: rename one of them", name, other)
			continue
		}
		names[name] = t.Name
		i := importer{opt, line}
		i.job(t, name)
	}
	return lines, nil
}

// nameOf returns a name as jobs of Belfry may have it.
func nameOf(name string) string {
	return strings.Trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, name), "-_.")
}

type importer struct {
	Options
	line *crontab.Line
}

func (i *importer) note(format string, args ...any) {
	i.line.Notes = append(i.line.Notes, fmt.Sprintf(format, args...))
}

func (i *importer) job(t *theirs, name string) {
	j := &job.Job{Name: name, Description: t.DisplayName, Paused: t.Disabled, Policy: job.Policy{Overlap: job.OverlapAllow, Missed: job.MissedNone}}
	if t.Concurrency == "forbid" {
		j.Policy.Overlap = job.OverlapSkip
	}
	if t.Retries > 0 {
		j.Policy.Retry = &job.Retry{Attempts: &t.Retries}
	}
	if i.line.Problem = i.schedule(j, t); i.line.Problem != "" {
		return
	}
	if i.line.Problem = i.work(j, t); i.line.Problem != "" {
		return
	}
	i.place(j, t)
	for _, key := range slices.Sorted(maps.Keys(t.Metadata)) {
		if j.Labels == nil {
			j.Labels = map[string]string{}
		}
		j.Labels[key] = t.Metadata[key]
	}
	if t.Owner != "" {
		if j.Labels == nil {
			j.Labels = map[string]string{}
		}
		j.Labels["owner"] = nameOf(t.Owner)
	}
	if t.OwnerEmail != "" {
		i.note("owner_email: failures are not mailed to %s; a document of kind channel does that", t.OwnerEmail)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Processors)) {
		i.note("processor %s is left out: output is kept with the run", name)
	}
	if t.Ephemeral {
		if j.Schedule.DeleteAfter = new(job.Duration); len(j.Schedule.At) == 0 {
			j.Schedule.DeleteAfter = nil
			i.note("ephemeral is left out: it needs a schedule with @at")
		}
	}
	i.line.Documents = []job.Document{{Kind: job.KindJob, Job: j}}
}

// schedule sets when the job is due.
func (i *importer) schedule(j *job.Job, t *theirs) string {
	text := strings.TrimSpace(t.Schedule)
	zone := t.Timezone
	if at, isAt := strings.CutPrefix(text, "@at "); isAt {
		moment, err := time.Parse(time.RFC3339, strings.TrimSpace(at))
		if err != nil {
			return fmt.Sprintf("schedule: %q is no moment as RFC 3339 writes it", text)
		}
		j.Schedule.At = []time.Time{moment}
	} else {
		switch {
		case t.ParentJob != "":
			j.Schedule.On = []job.Upstream{{Job: nameOf(t.ParentJob)}}
			if text != "" && text != "@manually" {
				i.note("schedule is left out: the job runs after %s", t.ParentJob)
			}
			return i.span(j, t)
		case text == "@manually", text == "":
			return i.span(j, t)
		case text == "@minutely":
			text = "* * * * *"
		case strings.HasPrefix(text, "@every "):
			every, err := job.ParseDuration(strings.TrimSpace(strings.TrimPrefix(text, "@every ")))
			if err != nil {
				return "schedule: " + err.Error()
			}
			j.Schedule.Every = every
			i.note("@every counts from 1970, and not from the start of the server")
			return i.span(j, t)
		}
		j.Schedule.Cron = []string{text}
		if zone == "" {
			zone = i.Zone
			i.note("timezone is missing: it means the zone of the Dkron servers, taken as %s; --tz names another", zone)
		}
		j.Schedule.Timezone = zone
	}
	return i.span(j, t)
}

// span sets from when to when the job is due.
func (i *importer) span(j *job.Job, t *theirs) string {
	for _, bound := range []struct {
		name  string
		value any
		to    *time.Time
	}{{"starts_at", t.StartsAt, &j.Schedule.Start}, {"expires_at", t.ExpiresAt, &j.Schedule.End}} {
		text, _ := bound.value.(string)
		if text == "" || strings.HasPrefix(text, "0001-") {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return fmt.Sprintf("%s: %q is no moment as RFC 3339 writes it", bound.name, text)
		}
		if len(j.Schedule.Cron) == 0 && j.Schedule.Every == 0 {
			i.note("%s is left out: it needs a repeated schedule", bound.name)
			continue
		}
		*bound.to = at
	}
	return ""
}

// work sets what the job runs.
func (i *importer) work(j *job.Job, t *theirs) string {
	c := maps.Clone(t.ExecutorConfig)
	take := func(key string) string {
		value := c[key]
		delete(c, key)
		return value
	}
	defer func() {
		for _, key := range slices.Sorted(maps.Keys(c)) {
			if c[key] != "" && c[key] != "false" {
				i.note("executor_config.%s: %s is left out", key, c[key])
			}
		}
	}()
	switch t.Executor {
	case "shell":
		return i.shell(j, take)
	case "http":
		return i.http(j, take)
	case "":
		c = nil
		return "it has no executor"
	}
	c = nil
	return fmt.Sprintf("executor %s: shell and http are imported; a command of a shell job can do the rest", t.Executor)
}

func (i *importer) shell(j *job.Job, take func(string) string) string {
	command := take("command")
	if command == "" {
		return "executor_config.command is missing"
	}
	s := &job.Shell{Command: literal(command), Dir: take("cwd")}
	j.Run.Shell = s
	if inShell, _ := strconv.ParseBool(take("shell")); !inShell {
		words, plain := plainWords(command)
		if !plain {
			i.note("shell is false: Dkron splits the command into words; here sh reads it, with its quotes and variables")
		} else if len(words) > 1 {
			s.Command, s.Args = literal(words[0]), nil
			for _, word := range words[1:] {
				s.Args = append(s.Args, literal(word))
			}
		}
	}
	for pair := range strings.SplitSeq(take("env"), ",") {
		name, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found {
			continue
		}
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[name] = literal(value)
	}
	if text := take("mem_limit_kb"); text != "" {
		kb, err := strconv.ParseInt(text, 10, 64)
		if err != nil || kb < 1 {
			return fmt.Sprintf("executor_config.mem_limit_kb: %q is no number of kilobytes", text)
		}
		s.Limits = &job.Limits{Memory: max(1<<20, job.Size(kb<<10))}
	}
	return setTimeout(j, take("timeout"))
}

// plainWords splits a command that has nothing that a shell reads.
func plainWords(command string) ([]string, bool) {
	return strings.Fields(command), !strings.ContainsAny(command, "\"'\\$`|&;<>()*?[]{}~#=!\n")
}

// setTimeout reads a duration, or a number of seconds.
func setTimeout(j *job.Job, text string) string {
	if text == "" {
		return ""
	}
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	d, err := job.ParseDuration(text)
	if err != nil {
		return "executor_config.timeout: " + err.Error()
	}
	j.Policy.Timeout = &d
	return ""
}

func (i *importer) http(j *job.Job, take func(string) string) string {
	h := &job.HTTP{Method: strings.ToUpper(take("method")), URL: literal(take("url")), Body: literal(take("body")), Match: take("expectBody")}
	if h.URL == "" {
		return "executor_config.url is missing"
	}
	j.Run.HTTP = h
	if text := take("headers"); text != "" {
		var list []string
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return fmt.Sprintf("executor_config.headers: %q is no JSON list of headers", text)
		}
		h.Headers = map[string]string{}
		for _, header := range list {
			name, value, _ := strings.Cut(header, ":")
			h.Headers[strings.TrimSpace(name)] = literal(strings.TrimSpace(value))
		}
	}
	for code := range strings.SplitSeq(take("expectCode"), ",") {
		if code = strings.TrimSpace(code); code != "" {
			h.Expect = append(h.Expect, code)
		}
	}
	insecure, _ := strconv.ParseBool(take("tlsNoVerifyPeer"))
	tls := job.TLS{Insecure: insecure, CA: take("tlsRootCAsFile"), Cert: take("tlsCertificateFile"), Key: take("tlsCertificateKeyFile")}
	if tls != (job.TLS{}) && strings.HasPrefix(strings.ToLower(h.URL), "https:") {
		h.TLS = &tls
	}
	take("debug")
	return setTimeout(j, take("timeout"))
}

// place sets the nodes. Dkron runs a job on each node with its tags, or on as many as a tag says.
func (i *importer) place(j *job.Job, t *theirs) {
	one := false
	for _, key := range slices.Sorted(maps.Keys(t.Tags)) {
		value, count, counted := strings.Cut(t.Tags[key], ":")
		if counted {
			one = true
			if count != "1" {
				i.note("tag %s: %s nodes of them are not supported: one runs it", key, count)
			}
		}
		if j.Place.Labels == nil {
			j.Place.Labels = map[string]string{}
		}
		j.Place.Labels[key] = value
	}
	if len(t.Tags) > 0 {
		i.note("tags are labels of nodes: start them with belfry serve --label, or belfry worker --label")
	}
	if one {
		return
	}
	j.Place.Strategy = job.StrategyBroadcast
	if len(t.Tags) == 0 {
		i.note("a job without tags runs on every node, as in Dkron; remove place.strategy to run it once")
	}
}

// literal keeps text from being a template.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }
