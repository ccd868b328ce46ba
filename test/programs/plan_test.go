//go:build servers

package programs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const integrations = "../../integrations"

// pullRequest is a stand-in of GitHub's API, with the comments of one pull request.
type pullRequest struct {
	mu       sync.Mutex
	comments []map[string]any
	refuses  bool
}

func (p *pullRequest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses || r.Header.Get("Authorization") != "Bearer github" {
		http.Error(w, `{"message":"Resource not accessible by integration"}`, http.StatusForbidden)
		return
	}
	var body struct{ Body string }
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	var answer any
	switch path := r.URL.Path; {
	case r.Method == http.MethodGet && path == "/repos/o/r/issues/7/comments":
		page, size := 1, 30
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		_, _ = fmt.Sscan(r.URL.Query().Get("per_page"), &size)
		from := min((page-1)*size, len(p.comments))
		answer = p.comments[from:min(from+size, len(p.comments))]
	case r.Method == http.MethodPost && path == "/repos/o/r/issues/7/comments":
		answer = p.add(body.Body)
	case r.Method == http.MethodPatch:
		for _, c := range p.comments {
			if path == fmt.Sprintf("/repos/o/r/issues/comments/%v", c["id"]) {
				c["body"], answer = body.Body, c
			}
		}
	}
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *pullRequest) add(body string) map[string]any {
	c := map[string]any{"id": 1000 + len(p.comments), "body": body}
	p.comments = append(p.comments, c)
	return c
}

// plans returns the bodies of the comments with a plan.
func (p *pullRequest) plans() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.comments {
		if text, _ := c["body"].(string); strings.HasPrefix(text, "<!-- belfry plan -->") {
			list = append(list, text)
		}
	}
	return list
}

// A pull request gets one comment, which later pushes renew, whatever is in the files.
func TestAPullRequestShowsItsPlan(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve()
	s.until("server", "node", "list")
	pull := &pullRequest{}
	for range 130 { // more than a page
		pull.add("looks good")
	}
	github := httptest.NewServer(pull)
	t.Cleanup(github.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs", "夜间 jobs.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "event.json"), `{"pull_request": {"number": 7}}`)
	token := s.tokenOf("viewer")
	plan := func(server string) (said string, failed bool, outputs string) {
		t.Helper()
		write(filepath.Join(dir, "outputs"), "")
		script, err := filepath.Abs(filepath.Join(integrations, "github", "plan.mjs"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "node", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.cli)+":"+os.Getenv("PATH"), "FILES=jobs\n", "OWNER=team", "PRUNE=true", "COMMENT=true",
			"BELFRY_SERVER="+server, "BELFRY_TOKEN="+token, "GITHUB_TOKEN=github", "GITHUB_API_URL="+github.URL, "GITHUB_REPOSITORY=o/r",
			"GITHUB_EVENT_PATH="+filepath.Join(dir, "event.json"), "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary"), "GITHUB_OUTPUT="+filepath.Join(dir, "outputs"))
		out, err := cmd.CombinedOutput()
		text, readErr := os.ReadFile(filepath.Join(dir, "outputs"))
		if readErr != nil {
			t.Fatal(readErr)
		}
		return string(out), err != nil, string(text)
	}
	server := "http://" + s.address

	write(file, "name: nightly\nschedul: {cron: \"0 2 * * *\"}\nrun: {shell: x}\n")
	said, failed, outputs := plan(server)
	if !failed || !strings.Contains(said, "::error file=jobs/夜间 jobs.yaml,line=2,col=1::schedul: unknown field") || !strings.Contains(outputs, "changes=false") {
		t.Errorf("a file with a mistake: %s%s", said, outputs)
	}
	write(file, "name: nightly\nschedule: {cron: \"0 2 * * *\"}\nrun: {shell: \"echo '```' 你好\"}\n")
	said, failed, outputs = plan(server)
	comments := pull.plans()
	if failed || len(comments) != 1 || !strings.Contains(comments[0], "+name: nightly") || !strings.Contains(comments[0], "````diff\n") || !strings.Contains(outputs, "changes=true") {
		t.Errorf("a new job, with a fence in it: %s\n%q", said, comments)
	}
	if out, err := s.ask("apply", "-f", file, "--owner", "team"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if said, failed, outputs = plan(server); failed || !strings.Contains(pull.plans()[0], "would change nothing") || !strings.Contains(outputs, "changes=false") {
		t.Errorf("nothing to change: %s%s\n%q", said, outputs, pull.plans())
	}
	write(file, "kind: pool\nname: db\npool: {size: 3}\n")
	if said, failed, _ = plan(server); failed || !strings.Contains(pull.plans()[0], "-name: nightly") {
		t.Errorf("a job that was removed: %s\n%q", said, pull.plans())
	}
	if said, failed, _ = plan("http://127.0.0.1:1"); !failed || !strings.Contains(pull.plans()[0], "no server answered") {
		t.Errorf("without an answer: %s\n%q", said, pull.plans())
	}
	if said, failed, _ = plan(""); failed || !strings.Contains(pull.plans()[0], "not compared with a server") {
		t.Errorf("without a server: %s\n%q", said, pull.plans())
	}
	pull.mu.Lock()
	pull.refuses = true
	pull.mu.Unlock()
	if said, failed, _ = plan(server); failed || !strings.Contains(said, "::warning::the plan is not in a comment") {
		t.Errorf("from a fork: %s", said)
	}
	if n := len(pull.plans()); n != 1 {
		t.Errorf("there are %d comments with a plan", n)
	}
}

// The action gives the script each variable that it reads and GitHub does not set.
func TestTheActionSetsWhatItsScriptReads(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(integrations, "github", "plan.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	action, err := os.ReadFile(filepath.Join(integrations, "github", "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`env\.([A-Z_]+)`).FindAllSubmatch(script, -1)
	if len(named) == 0 {
		t.Fatal("the script reads nothing")
	}
	for _, name := range named {
		github := strings.HasPrefix(string(name[1]), "GITHUB_") && string(name[1]) != "GITHUB_TOKEN"
		if !github && !strings.Contains(string(action), "\n        "+string(name[1])+": ${{ inputs.") {
			t.Errorf("the action does not set %s", name[1])
		}
	}
}

func TestTheHookOfPreCommitFindsMistakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"good a.yaml": "name: a\nrun: {shell: x}\n", "bad.yaml": "name: b\nrun: {shel: x}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hook, err := filepath.Abs(filepath.Join(integrations, "pre-commit", "validate.sh"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(files ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), hook, files...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.cli)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := check("good a.yaml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := check("good a.yaml", "bad.yaml"); err == nil || !strings.Contains(out, "bad.yaml:2:7: run.shel") {
		t.Errorf("%v\n%s", err, out)
	}
}
