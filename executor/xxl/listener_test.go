package xxlexec

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// onMemory is the store of tests.
type onMemory = memory.Store

func TestPathsMethodsAndTokens(t *testing.T) {
	bubble(t, func(r *rig) {
		const registration = `{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":"http://10.0.0.5:9999/"}`
		for _, path := range []string{"/api/registry", "//api/registry", "/xxl-job-admin/api/registry", "/xxl-job-admin//api/registryRemove"} {
			r.say(r.admin, path, nil, registration, 200)
		}
		r.say(r.admin, "/api/registry", http.Header{xxl.HeaderToken: {"the-next-token-of-tests"}}, registration, 200)
		for _, c := range []struct{ path, body, token, want string }{
			{"/api/registry", registration, "", "The access token is wrong."},
			{"/api/registry", registration, "default_token", "The access token is wrong."},
			{"/api/callback", `[]`, token + "x", "The access token is wrong."},
			{"/api/nope", registration, token, "invalid request, uri-mapping(/api/nope) not found."},
			{"/", registration, token, "uri-mapping(/) not found."},
			{"/run", registration, token, "uri-mapping(/run) not found."},
			{"/api/registry", " ", token, "invalid request, requestBody empty."},
			{"/api/registry", `{"registryGroup":"EXECUTOR","registryKey":"","registryValue":"x"}`, token, "Illegal Argument."},
			{"/api/callback", `{`, token, "Illegal Argument."},
		} {
			if said := r.say(r.admin, c.path, http.Header{xxl.HeaderToken: {c.token}}, c.body, 500); !strings.Contains(said.Message, c.want) {
				t.Errorf("%s %s: %q, want %q", c.path, c.body, said.Message, c.want)
			}
		}
		answer := httptest.NewRecorder()
		r.admin.ServeHTTP(answer, httptest.NewRequest("GET", "/api/registry", nil))
		if got := answer.Body.String(); answer.Code != 200 || got != `{"code":500,"msg":"invalid request, HttpMethod not support.","content":null,"data":null}` {
			t.Errorf("GET: %d %s", answer.Code, got)
		}
		if r.admin.failures.byIP["192.0.2.1"].count != 3 {
			t.Errorf("counted %+v", r.admin.failures.byIP)
		}
	})
}

func TestAddressesThatAreNotCalled(t *testing.T) {
	bubble(t, func(r *rig) {
		for address, want := range map[string]string{
			"ftp://10.0.0.5/":                  "only http and https",
			"http://ann:secret@10.0.0.5:9999":  "user or password",
			"http://10.0.0.5:9999/?a=b":        "query",
			"http://10.0.0.5:9999/admin#":      "fragment",
			"10.0.0.5:9999":                    "URL",
			"http://127.0.0.1:9999":            "loopback address, and the caller is on another machine",
			"http://localhost:9999/":           "loopback",
			"http://[::1]:9999":                "loopback",
			"http://169.254.169.254/":          "link-local",
			"http://0.0.0.0:9999":              "unspecified",
			"http://[::ffff:127.0.0.1]:9999":   "loopback",
			"https://[64:ff9b::169.254.169.2]": "link-local",
		} {
			body := fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":%q}`, address)
			if said := r.say(r.admin, "/api/registry", nil, body, 500); !strings.Contains(said.Message, want) {
				t.Errorf("%s: %q, want %q", address, said.Message, want)
			}
		}
		list, err := r.store.Registrations(r.Context(), Kind)
		r.must(err)
		if len(list) > 0 {
			t.Errorf("registered: %v", list)
		}
		request := httptest.NewRequest("POST", "/api/registry", strings.NewReader(`{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":"http://127.0.0.1:9999/ctx"}`))
		request.RemoteAddr = "127.0.0.1:5000"
		request.Header.Set(xxl.HeaderToken, token)
		answer := httptest.NewRecorder()
		if r.admin.ServeHTTP(answer, request); !strings.Contains(answer.Body.String(), `"code":200`) {
			t.Errorf("a neighbour on this machine: %s", answer.Body)
		}
	})
}

func TestALargeBodyIsRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		r.say(r.admin, "/api/callback", nil, "["+strings.Repeat(" ", bodyMax)+"]", 500)
	})
}

// counting counts the writes to the registry.
type counting struct {
	*onMemory
	registered atomic.Int32
}

func (c *counting) Register(ctx context.Context, list []store.Registration) error {
	c.registered.Add(1)
	return c.onMemory.Register(ctx, list)
}

func TestSignsOfLifeAreGathered(t *testing.T) {
	bubble(t, func(r *rig) {
		counted := &counting{onMemory: r.store}
		r.admin.store = counted
		r.register("g", "10.0.0.5:9999", "")
		if n := counted.registered.Load(); n != 1 {
			t.Errorf("a new executor was written %d times", n)
		}
		r.keep(r.admin)
		for range 30 { // 5 min of registrations each 10 s
			for i := range 3 {
				r.register("g", fmt.Sprintf("10.0.0.%d:9999", 5+i), "")
			}
			time.Sleep(10 * time.Second)
		}
		if n := counted.registered.Load(); n < 12 || n > 50 {
			t.Errorf("written %d times in 5 min", n)
		}
		list, err := r.store.Registrations(r.Context(), Kind)
		r.must(err)
		if len(list) != 3 {
			t.Errorf("registered: %v", list)
		}
		r.register("g", "10.0.0.5:9999", "D")
		list, err = r.store.Registrations(r.Context(), Kind)
		r.must(err)
		if list[0].Generation != "D" {
			t.Errorf("a new generation is not written at once: %+v", list[0])
		}
		r.say(r.admin, "/api/registryRemove", nil, `{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":"http://10.0.0.5:9999"}`, 200)
		list, err = r.store.Registrations(r.Context(), Kind)
		r.must(err)
		if len(list) != 2 || r.admin.registry.has("g", "http://10.0.0.5:9999", true) {
			t.Errorf("after it has gone: %v", list)
		}
	})
}

func TestUnknownCallbacksAreForwarded(t *testing.T) {
	bubble(t, func(r *rig) {
		var mu sync.Mutex
		var got []string
		other := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body := make([]byte, q.ContentLength)
			_, _ = q.Body.Read(body)
			mu.Lock()
			got = append(got, q.URL.Path+" "+q.Header.Get(xxl.HeaderToken)+" "+string(body))
			mu.Unlock()
			_, _ = w.Write(xxl.Accepted())
		})
		l := r.net.listen("old:8080")
		server := &http.Server{Handler: other}
		go func() { _ = server.Serve(l) }()
		r.Cleanup(func() { r.net.cut("old:8080"); _ = server.Close() })
		r.must(r.admin.Set(Settings{Tokens: []string{token}, Forward: "http://old:8080/xxl-job-admin/"}))
		r.executor("g", "10.0.0.5:9999", "")
		r.keep(r.admin)
		a := r.run(plain)
		r.say(r.admin, "/api/callback", nil, `[{"logId":1,"handleCode":200},{"logId":77,"handleCode":200,"handleMsg":"old"}]`, 200)
		r.say(r.admin, "/api/callback", nil, `{"callbackList":[{"logId":1,"handleCode":200},{"logId":78,"logDateTime":5,"handleCode":500}]}`, 200)
		r.wants(a, job.OutcomeSucceeded, "")
		time.Sleep(time.Second)
		mu.Lock()
		text := strings.Join(got, "\n")
		mu.Unlock()
		for _, want := range []string{
			"/xxl-job-admin/api/registry " + token + ` {"registryGroup":"EXECUTOR"`,
			"/xxl-job-admin/api/callback " + token + ` [{"logId":77,"handleCode":200,"handleMsg":"old"}]`,
			"/xxl-job-admin/api/callback " + token + ` {"callbackList":[{"logId":78,"logDateTime":5,"handleCode":500}]}`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("passed on:\n%s\nwant %s", text, want)
			}
		}
		if strings.Contains(text, `"logId":1,`) {
			t.Errorf("a result of Belfry's was passed on:\n%s", text)
		}
	})
}
