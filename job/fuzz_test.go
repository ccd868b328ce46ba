package job_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// FuzzDecode searches for documents that crash Decode, Validate or WithDefaults, or that change
// when they are encoded and decoded.
func FuzzDecode(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		for name, data := range samples(f, dir) {
			f.Add(filepath.Ext(name) == ".json", data)
		}
	}
	f.Fuzz(func(t *testing.T, isJSON bool, data []byte) {
		name := "a.yaml"
		if isJSON {
			name = "a.json"
		}
		docs, err := job.Decode(name, data)
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		for _, doc := range docs {
			// The readable rest of a document is checked as well, as by a server.
			_ = doc.Validate(job.Now(now), job.Under(job.Defaults{}), job.Among(func(string, string) *job.Calendar { return nil }))
			valid := doc.Validate(job.Now(now)) == nil && err == nil
			doc.Warnings()
			if doc.Job != nil {
				doc.Job = doc.Job.WithDefaults(job.Defaults{})
			}
			if !valid {
				continue
			}
			for _, format := range []job.Format{job.YAML, job.JSON} {
				var b bytes.Buffer
				if err := job.Encode(&b, []job.Document{doc}, format); err != nil {
					t.Fatalf("encode as %s: %v", format, err)
				}
				again, err := job.Decode("again."+string(format), b.Bytes())
				if err != nil || len(again) != 1 || !same(again[0], doc) {
					t.Fatalf("as %s it became something else: %v\n%s", format, err, b.String())
				}
			}
		}
	})
}

// FuzzTemplate searches for templates that crash the compiler or their execution.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{
		`{{ .Scheduled.Format "2006-01-02" }}`, `{{ (.Scheduled.AddDate 0 0 -1).Format "Jan" }}`, `{{ if .Previous }}a{{ else }}b{{ end }}`,
		`echo {{ .Param.day }} "{{ .Shard }}" $(x {{ .Node }})`, `https://example.com/{{ .Name }}?a={{ .Param.day }}`, `{"a": {{ .Param.day }}}`,
		`{{ replace "a" "b" .Param.quote | upper | default "x" }}`, `{{ pad 3 (add .Shard 1) }}`, `{{ "{{" }}`,
	} {
		for kind := range uint8(job.TemplateForm + 1) {
			f.Add(kind, text)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		compiled, err := job.CompileTemplate(job.TemplateKind(kind%uint8(job.TemplateForm+1)), text, params)
		if err != nil {
			return
		}
		for _, d := range []job.TemplateData{{}, data(t)} {
			if out, err := compiled.Execute(d); err == nil && len(out) > 4<<20 {
				t.Errorf("made %d bytes", len(out))
			}
		}
	})
}
