// Package dkron turns jobs of Dkron into jobs of Belfry. It reads the JSON of Dkron's API, and neither
// files nor a server.
package dkron

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Options are settings that jobs lack.
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

// Import reads the answer of GET /v1/jobs, or one job of it. Each line is a job; its number is its
// place in the list.
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
			line.Problem = phrase.NameBecomes.Of(name, phrase.Quoted(other))
			continue
		}
		names[name] = t.Name
		i := importer{opt, line}
		i.job(t, name)
	}
	return lines, nil
}

// nameOf returns a name as jobs of Belfry may have it. A hash tells names apart that differ in the letters it leaves out.
func nameOf(name string) string {
	if !strings.ContainsFunc(name, func(c rune) bool { return c > unicode.MaxASCII }) {
		return slug(name)
	}
	sum := sha256.Sum256([]byte(name))
	return cmp.Or(slug(name), "job") + "-" + hex.EncodeToString(sum[:hashLen])
}

// hashLen is in bytes: enough to tell the jobs of one server apart.
const hashLen = 3

func slug(text string) string {
	return strings.Trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, text), "-_.")
}

type importer struct {
	Options
	line *crontab.Line
}

func (i *importer) note(text phrase.Text) { i.line.Notes = append(i.line.Notes, text) }

func (i *importer) job(t *theirs, name string) {
	j := &job.Job{Name: name, Description: t.DisplayName, Paused: t.Disabled, Policy: job.Policy{Overlap: job.OverlapAllow, Missed: job.MissedNone}}
	if t.Concurrency == "forbid" {
		j.Policy.Overlap = job.OverlapSkip
	}
	if t.Retries > 0 {
		j.Policy.Retry = &job.Retry{Attempts: &t.Retries}
	}
	if i.line.Problem = i.schedule(j, t); !i.line.Problem.IsZero() {
		return
	}
	if i.line.Problem = i.work(j, t); !i.line.Problem.IsZero() {
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
		j.Labels["owner"] = slug(t.Owner)
	}
	if t.OwnerEmail != "" {
		i.note(phrase.OwnerNotMailed.Of(t.OwnerEmail))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Processors)) {
		i.note(phrase.LeftOut.Of("processor "+name, phrase.OutputIsKept))
	}
	if t.Ephemeral {
		if j.Schedule.DeleteAfter = new(job.Duration); len(j.Schedule.At) == 0 {
			j.Schedule.DeleteAfter = nil
			i.note(phrase.LeftOut.Of("ephemeral", phrase.NeedsAt))
		}
	}
	i.line.Documents = []job.Document{{Kind: job.KindJob, Job: j}}
}

// schedule sets the schedule of the job.
func (i *importer) schedule(j *job.Job, t *theirs) phrase.Text {
	text := strings.TrimSpace(t.Schedule)
	zone := t.Timezone
	if at, isAt := strings.CutPrefix(text, "@at "); isAt {
		moment, err := time.Parse(time.RFC3339, strings.TrimSpace(at))
		if err != nil {
			return phrase.InField.Of("schedule", phrase.NotMoment.Of(phrase.Quoted(text)))
		}
		j.Schedule.At = []time.Time{moment}
	} else {
		switch {
		case t.ParentJob != "":
			j.Schedule.On = []job.Upstream{{Job: nameOf(t.ParentJob)}}
			if text != "" && text != "@manually" {
				i.note(phrase.LeftOut.Of("schedule", phrase.RunsAfter.Of(t.ParentJob)))
			}
			return i.span(j, t)
		case text == "@manually", text == "":
			return i.span(j, t)
		case text == "@minutely":
			text = "* * * * *"
		case strings.HasPrefix(text, "@every "):
			every, err := job.ParseDuration(strings.TrimSpace(strings.TrimPrefix(text, "@every ")))
			if err != nil {
				return phrase.InField.Of("schedule", phrase.OfError(err))
			}
			j.Schedule.Every = every
			i.note(phrase.EveryFromEpoch)
			return i.span(j, t)
		}
		j.Schedule.Cron = []string{text}
		if zone == "" {
			zone = i.Zone
			i.note(phrase.ServerZone.Of(zone))
		}
		j.Schedule.Timezone = zone
	}
	return i.span(j, t)
}

// span sets the start and end of the schedule.
func (i *importer) span(j *job.Job, t *theirs) phrase.Text {
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
			return phrase.InField.Of(bound.name, phrase.NotMoment.Of(phrase.Quoted(text)))
		}
		if len(j.Schedule.Cron) == 0 && j.Schedule.Every == 0 {
			i.note(phrase.LeftOut.Of(bound.name, phrase.NeedsRepeated))
			continue
		}
		*bound.to = at
	}
	return phrase.Text{}
}

// work sets the work of the job.
func (i *importer) work(j *job.Job, t *theirs) phrase.Text {
	c := maps.Clone(t.ExecutorConfig)
	take := func(key string) string {
		value := c[key]
		delete(c, key)
		return value
	}
	defer func() {
		for _, key := range slices.Sorted(maps.Keys(c)) {
			if c[key] != "" && c[key] != "false" {
				i.note(phrase.LeftOutValue.Of("executor_config."+key, c[key]))
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
		return phrase.NoExecutor
	}
	c = nil
	return phrase.OtherExecutor.Of(t.Executor)
}

func (i *importer) shell(j *job.Job, take func(string) string) phrase.Text {
	command := take("command")
	if command == "" {
		return phrase.InField.Of("executor_config.command", phrase.Missing)
	}
	s := &job.Shell{Command: literal(command), Dir: take("cwd")}
	j.Run.Shell = s
	if inShell, _ := strconv.ParseBool(take("shell")); !inShell {
		words, plain := plainWords(command)
		if !plain {
			i.note(phrase.DkronSplits)
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
			return phrase.InField.Of("executor_config.mem_limit_kb", phrase.NotKilobytes.Of(phrase.Quoted(text)))
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
func setTimeout(j *job.Job, text string) phrase.Text {
	if text == "" {
		return phrase.Text{}
	}
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	d, err := job.ParseDuration(text)
	if err != nil {
		return phrase.InField.Of("executor_config.timeout", phrase.OfError(err))
	}
	j.Policy.Timeout = &d
	return phrase.Text{}
}

func (i *importer) http(j *job.Job, take func(string) string) phrase.Text {
	h := &job.HTTP{Method: strings.ToUpper(take("method")), URL: literal(take("url")), Body: literal(take("body")), Match: take("expectBody")}
	if h.URL == "" {
		return phrase.InField.Of("executor_config.url", phrase.Missing)
	}
	j.Run.HTTP = h
	if text := take("headers"); text != "" {
		var list []string
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return phrase.InField.Of("executor_config.headers", phrase.NotHeaders.Of(phrase.Quoted(text)))
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

// place sets the nodes. Dkron runs a job on each node with its tags, or on the number of nodes in a
// tag.
func (i *importer) place(j *job.Job, t *theirs) {
	one := false
	for _, key := range slices.Sorted(maps.Keys(t.Tags)) {
		value, count, counted := strings.Cut(t.Tags[key], ":")
		if counted {
			one = true
			if count != "1" {
				i.note(phrase.OneOfTagged.Of(key, count))
			}
		}
		if j.Place.Labels == nil {
			j.Place.Labels = map[string]string{}
		}
		j.Place.Labels[key] = value
	}
	if len(t.Tags) > 0 {
		i.note(phrase.TagsAreLabels)
	}
	if one {
		return
	}
	j.Place.Strategy = job.StrategyBroadcast
	if len(t.Tags) == 0 {
		i.note(phrase.RunsOnEveryNode)
	}
}

// literal escapes text so that it is no template.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }
