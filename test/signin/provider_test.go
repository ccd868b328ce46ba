package signin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// patience bounds waits on a busy machine.
const patience = 2 * time.Minute

const (
	clientID     = "belfry"
	clientSecret = "the secret of the client"
	password     = "a password"
)

// belfry is the program.
var belfry string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "belfry-signin-")
	if err != nil {
		panic(err)
	}
	belfry = filepath.Join(dir, "belfry")
	build := exec.Command("go", "run", "-exec", "cp", "./cmd/belfry", belfry) // which keeps what it has linked
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build belfry: %v\n%s", err, out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// people are the users of the provider, with their groups: ann's are in the ID token, the others'
// only in the user information.
type people struct {
	*storage.Storage
	groups map[string][]string
}

func (p people) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string) error {
	if token.GetSubject() == "id-ann" {
		info.AppendClaims("groups", p.groups["id-ann"])
	}
	return p.Storage.SetUserinfoFromRequest(ctx, info, token, scopes)
}

func (p people) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	info.AppendClaims("groups", p.groups[subject])
	return p.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin)
}

// site is a server of Belfry and its provider.
type site struct {
	t                    *testing.T
	data, url, listen    string
	provider, secretFile string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, data: filepath.Join(t.TempDir(), "data"), listen: freeAddress(t)}
	s.url = "http://" + s.listen
	callback := s.url + "/ui/sign-in/callback"
	s.startProvider(callback)
	s.secretFile = filepath.Join(t.TempDir(), "secret")
	s.write(s.secretFile, clientSecret)
	settings := filepath.Join(t.TempDir(), "belfry.yaml")
	s.write(settings, `
oidc:
  issuer: `+s.provider+`
  client_id: `+clientID+`
  client_secret_file: `+s.secretFile+`
  redirect_url: `+callback+`
  button: Example ID
  groups: {ops: [admin], shop-team: [shop=viewer]}
`)
	cmd := exec.Command(belfry, "serve", "--data", s.data, "--listen", s.listen, "--config", settings, "--name", "one")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", said.String())
		}
	})
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		if answer, err := http.Get(s.url + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the server is not ready")
		}
	}
	for _, namespace := range []string{"shop", "data"} {
		s.belfry("job", "create", namespace+"/report", "--cron", "0 3 1 1 *", "--", "true")
	}
	return s
}

// freeAddress returns a free address of loopback, whose port no connection uses by chance: systems
// assign ports from 32768 on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// startProvider starts the provider. It has another host than the server, as providers have.
func (s *site) startProvider(callback string) {
	s.t.Helper()
	type user = storage.User
	users := map[string]user{}
	for _, name := range []string{"ann", "bob", "carol"} {
		users["id-"+name] = user{ID: "id-" + name, Username: name, Password: password, FirstName: name, LastName: "Example", Email: name + "@example.com", EmailVerified: true}
	}
	text, err := json.Marshal(users)
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.t.TempDir(), "users.json")
	s.write(file, string(text))
	known, err := storage.StoreFromFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	client := storage.WebClient(clientID, clientSecret, callback)
	kept := people{storage.NewStorageWithClients(known, map[string]*storage.Client{clientID: client}), map[string][]string{
		"id-ann": {"ops"}, "id-bob": {"shop-team", "choir"}, "id-carol": {"guests"},
	}}
	server := httptest.NewUnstartedServer(nil)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.provider = "http://localhost:" + port
	server.Config.Handler = exampleop.SetupServer(s.provider, kept, slog.New(slog.DiscardHandler), false)
	server.Start()
	s.t.Cleanup(server.Close)
}

func (s *site) write(file, text string) {
	s.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// belfry runs a command as the administrator of the machine.
func (s *site) belfry(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(belfry, args...)
	cmd.Env = append(os.Environ(), "BELFRY_DATA="+s.data)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("belfry %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// visitor is a browser without scripts.
type visitor struct {
	*site
	http.Client
}

func (s *site) visitor() *visitor {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &visitor{s, http.Client{Jar: jar, Timeout: patience}}
}

// page returns an answer, after all redirects.
func (v *visitor) page(answer *http.Response, err error) (at *url.URL, status int, text string) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return answer.Request.URL, answer.StatusCode, string(body)
}

var requestID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// signIn follows the server to the provider, fills in its form, and returns.
func (v *visitor) signIn(name, password string) (at *url.URL, status int, text string) {
	v.t.Helper()
	at, status, form := v.page(v.Get(v.url + "/ui/sign-in?next=/jobs"))
	id := requestID.FindStringSubmatch(form)
	if status != http.StatusOK || "http://"+at.Host != v.provider || id == nil {
		return at, status, form
	}
	return v.page(v.PostForm(v.provider+"/login/username", url.Values{"id": {id[1]}, "username": {name}, "password": {password}}))
}

func TestPeopleSignInAtARealProvider(t *testing.T) {
	s := newSite(t)
	ann, bob := s.visitor(), s.visitor()
	if at, _, text := ann.signIn("ann", "guessed"); "http://"+at.Host != s.provider || !strings.Contains(text, "username or password wrong") {
		t.Fatalf("a wrong password leads to %s:\n%s", at, text)
	}
	at, status, text := ann.signIn("ann", password)
	if status != http.StatusOK || at.Host != s.listen || !strings.Contains(text, "url=/jobs") {
		t.Fatalf("the sign-in of ann leads to %s with %d:\n%s", at, status, text)
	}
	if _, _, text := ann.page(ann.Get(s.url + "/jobs")); !strings.Contains(text, "sso:ann@example.com") || !strings.Contains(text, "shop/report") || !strings.Contains(text, "data/report") {
		t.Errorf("ann, an administrator by the ID token, sees\n%s", text)
	}
	bob.signIn("bob", password)
	if _, _, text := bob.page(bob.Get(s.url + "/jobs")); !strings.Contains(text, "sso:bob@example.com") || !strings.Contains(text, "report") || strings.Contains(text, "data/report") {
		t.Errorf("bob, a viewer of one namespace by the user information, sees\n%s", text)
	}
	if _, status, _ := bob.page(bob.Get(s.url + "/jobs/data/report")); status != http.StatusForbidden {
		t.Errorf("bob gets %d for a job of another namespace", status)
	}
	if _, status, text := s.visitor().signIn("carol", password); status != http.StatusForbidden || !strings.Contains(text, "carol@example.com has no role here. None of these groups has one: guests.") {
		t.Errorf("carol, who has no role, gets %d:\n%s", status, text)
	}

	// The secret is read for each sign-in, and the provider checks it.
	s.write(s.secretFile, "another")
	if _, status, text := s.visitor().signIn("ann", password); status != http.StatusBadGateway {
		t.Errorf("with another secret of the client the sign-in ends with %d:\n%s", status, text)
	}
	s.write(s.secretFile, clientSecret)

	if records := s.belfry("audit", "--action", "session.begin", "-o", "wide"); !strings.Contains(records, "sso:ann@example.com") || !strings.Contains(records, "admin in all namespaces; subject id-ann of sso") || !strings.Contains(records, "viewer in shop; subject id-bob of sso") || strings.Contains(records, "carol") {
		t.Errorf("the audit is\n%s", records)
	}
	if list := s.belfry("session", "list", "-o", "name"); list != "sso:ann@example.com\nsso:bob@example.com\n" {
		t.Errorf("the sessions are %q", list)
	}
	s.belfry("session", "end", "sso:ann@example.com", "--yes")
	if at, _, _ := ann.page(ann.Get(s.url + "/jobs")); at.Path != "/ui/login" {
		t.Errorf("the ended session of ann leads to %s", at)
	}
	if at, _, _ := bob.page(bob.Get(s.url + "/jobs")); at.Path != "/jobs" {
		t.Errorf("the session of bob has ended as well: %s", at)
	}
	if records := s.belfry("audit", "--action", "session.end", "-o", "wide"); strings.Count(records, "sso:ann@example.com") != 1 {
		t.Errorf("the audit is\n%s", records)
	}
}

// commandLine is the user of a machine other than the server's, without tokens.
type commandLine struct {
	*site
	home string
}

func (s *site) commandLine() *commandLine { return &commandLine{s, s.t.TempDir()} }

// start starts a command.
func (c *commandLine) start(stdin io.Reader, args ...string) (cmd *exec.Cmd, stdout *bytes.Buffer, stderr *bufio.Reader) {
	c.t.Helper()
	cmd = exec.Command(belfry, args...)
	cmd.Env = []string{"HOME=" + c.home, "PATH=" + os.Getenv("PATH"), "BELFRY_SERVER=" + c.url}
	cmd.Stdin, stdout = stdin, &bytes.Buffer{}
	cmd.Stdout = stdout
	told, err := cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, stdout, bufio.NewReader(told)
}

// run runs a command to its end.
func (c *commandLine) run(args ...string) (out string, code int) {
	c.t.Helper()
	cmd, stdout, stderr := c.start(nil, args...)
	told, err := io.ReadAll(stderr)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = cmd.Wait()
	return stdout.String() + string(told), cmd.ProcessState.ExitCode()
}

// addressIn returns the address that a command prints.
func (c *commandLine) addressIn(stderr *bufio.Reader) string {
	c.t.Helper()
	for {
		line, err := stderr.ReadString('\n')
		if strings.HasPrefix(line, "http") {
			return strings.TrimSpace(line)
		}
		if err != nil {
			c.t.Fatalf("the command prints no address: %q, %v", line, err)
		}
	}
}

var (
	hiddenField = regexp.MustCompile(`name="(form|challenge|state|port)" value="([^"]*)"`)
	refresh     = regexp.MustCompile(`url=([^"]+)"`)
	codeOnPage  = regexp.MustCompile(`<code[^>]*>([A-Za-z0-9_-]{43})</code>`)
)

// approve opens the page of a command line, and presses its button.
func (v *visitor) approve(address string) string {
	v.t.Helper()
	at, status, page := v.page(v.Get(address))
	form := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	if status != http.StatusOK || !strings.Contains(page, "asks to act as sso:") {
		v.t.Fatalf("the page is %s with %d:\n%s", at, status, page)
	}
	_, status, page = v.page(v.PostForm(v.url+"/ui/sign-in/command", form))
	if status != http.StatusOK {
		v.t.Fatalf("the approval has the status %d:\n%s", status, page)
	}
	return page
}

func TestAPersonSignsInOnTheCommandLine(t *testing.T) {
	s := newSite(t)
	ann, bob := s.visitor(), s.visitor()
	ann.signIn("ann", password)
	bob.signIn("bob", password)
	mine, theirs := s.commandLine(), s.commandLine()
	if out, code := mine.run("job", "list"); code != 4 || !strings.Contains(out, "belfry login") {
		t.Errorf("without a session the command ends with %d:\n%s", code, out)
	}

	// Ann logs in with a browser on her machine.
	login, stdout, stderr := mine.start(nil, "login")
	back := refresh.FindStringSubmatch(ann.approve(mine.addressIn(stderr)))
	if back == nil {
		t.Fatal("the browser is not sent to the command")
	}
	there, err := url.Parse(html.UnescapeString(back[1]))
	if err != nil || there.Hostname() != "127.0.0.1" {
		t.Fatalf("the browser is sent to %s, %v", back[1], err)
	}
	forged := *there
	forged.RawQuery = url.Values{"code": {"forged"}, "state": {"another"}}.Encode()
	if _, status, _ := ann.page(ann.Get(forged.String())); status != http.StatusBadRequest {
		t.Errorf("a page of another site brings a code: %d", status)
	}
	if _, status, text := ann.page(ann.Get(there.String())); status != http.StatusOK || !strings.Contains(text, "You can close this page") {
		t.Errorf("the command answers %d, %s", status, text)
	}
	told, err := io.ReadAll(stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := login.Wait(); err != nil || !strings.Contains(stdout.String(), "signed in to "+s.url+" as sso:ann@example.com, admin in all namespaces, until ") {
		t.Fatalf("the command ends with %v:\n%s%s", err, stdout, told)
	}

	// Bob has his elsewhere, and types the code.
	typed, typing := io.Pipe()
	login, stdout, stderr = theirs.start(typed, "login", "--no-browser")
	shown := codeOnPage.FindStringSubmatch(bob.approve(theirs.addressIn(stderr)))
	if shown == nil {
		t.Fatal("the page shows no code")
	}
	if _, err := io.WriteString(typing, shown[1]+"\n"); err != nil {
		t.Fatal(err)
	}
	typing.Close()
	if told, err = io.ReadAll(stderr); err != nil {
		t.Fatal(err)
	}
	if err := login.Wait(); err != nil || !strings.Contains(stdout.String(), "as sso:bob@example.com, viewer in shop, until ") {
		t.Fatalf("the command ends with %v:\n%s%s", err, stdout, told)
	}

	// Each has their own roles, and the audit names them.
	if out, code := mine.run("job", "run", "shop/report", "--wait"); code != 0 {
		t.Errorf("ann, an administrator, cannot run a job: %d\n%s", code, out)
	}
	if out, code := theirs.run("job", "list", "-o", "name"); code != 0 || out != "shop/report\n" {
		t.Errorf("bob, a viewer in shop, gets %d:\n%s", code, out)
	}
	if out, code := theirs.run("job", "run", "shop/report"); code != 4 || !strings.Contains(out, "sso:bob@example.com is viewer in shop, and this needs runner") {
		t.Errorf("bob runs a job: %d\n%s", code, out)
	}
	records := s.belfry("audit", "--actor", "sso:ann@example.com", "-o", "wide")
	for _, want := range []string{"run.hand", "admin in all namespaces for a command line; subject id-ann of sso"} {
		if !strings.Contains(records, want) {
			t.Errorf("the audit has no %q:\n%s", want, records)
		}
	}

	// One session of each belongs to a browser. An administrator ends bob's, and ann her own.
	if list := s.belfry("session", "list", "-o", "name"); list != "sso:ann@example.com\nsso:ann@example.com\nsso:bob@example.com\nsso:bob@example.com\n" {
		t.Errorf("the sessions are %q", list)
	}
	if out, code := mine.run("session", "end", "sso:bob@example.com", "--yes"); code != 0 || !strings.Contains(out, "ended 2 sessions") {
		t.Errorf("ann ends the sessions of bob: %d\n%s", code, out)
	}
	if out, code := theirs.run("job", "list"); code != 4 || !strings.Contains(out, "the session of sso:bob@example.com at "+s.url+" has ended") || !strings.Contains(out, "belfry login") {
		t.Errorf("after the end of his session bob gets %d:\n%s", code, out)
	}
	for _, c := range []*commandLine{mine, theirs} { // bob's is only forgotten
		if out, code := c.run("logout"); code != 0 || out != "signed out of "+s.url+"\n" {
			t.Errorf("belfry logout ends with %d:\n%s", code, out)
		}
	}
	if out, code := mine.run("job", "list"); code != 4 {
		t.Errorf("after the log-out ann gets %d:\n%s", code, out)
	}
	if list := s.belfry("session", "list", "-o", "name"); list != "sso:ann@example.com\n" {
		t.Errorf("the sessions are %q", list)
	}
	if out, code := mine.run("logout"); code != 3 {
		t.Errorf("a second belfry logout ends with %d:\n%s", code, out)
	}
	// The provider sends browsers to one address of the server.
	other := "http://localhost:" + s.listen[strings.LastIndex(s.listen, ":")+1:]
	if out, code := mine.run("login", "--server", other); code != 2 || !strings.Contains(out, "belfry login --server "+s.url) {
		t.Errorf("at another address belfry login ends with %d:\n%s", code, out)
	}
}
