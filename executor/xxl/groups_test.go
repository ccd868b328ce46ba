package xxlexec

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// list makes a document of executors.
func (r *rig) list(e job.Executors) {
	r.Helper()
	_, err := r.store.PutDocument(r.Context(), job.Document{Executors: &e}, store.AnyVersion, "ann")
	r.must(err)
	r.must(r.admin.refresh(r.Context()))
}

// serveStub starts an executor that does not register.
func (r *rig) serveStub(addr string) *stub {
	r.Helper()
	s := &stub{addr: addr}
	l := r.net.listen(addr)
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(l) }()
	r.Cleanup(func() { r.net.cut(addr); _ = server.Close(); r.admin.Close() })
	return s
}

func TestExecutorsThatAreListedGetRunsWithoutRegistering(t *testing.T) {
	bubble(t, func(r *rig) {
		typed := r.serveStub("10.0.0.5:9999")
		r.list(job.Executors{Name: "typed", Group: "g", Addresses: []string{"http://10.0.0.5:9999/", "http://10.0.0.6:9999"}})
		time.Sleep(time.Hour) // without a sign of life
		r.must(r.admin.refresh(r.Context()))
		a := r.run(plain + "\nplace: {strategy: last}") // the last address does not listen
		if !a.result.HandedOver || typed.sent("/run") != 1 || typed.last().LogID != 2 {
			t.Errorf("%+v, asked %v", a.result, typed.asked)
		}
		r.callback(r.admin, 2, 200, "")
		r.wants(a, job.OutcomeSucceeded, "")

		// An executor that registers as well stays when it unregisters or falls silent.
		r.register("g", "10.0.0.5:9999", "D")
		r.run(plain + "\nplace: {strategy: first}")
		if typed.sent("/trigger") != 1 {
			t.Errorf("what it registers with does not count: %v", typed.asked)
		}
		r.say(r.admin, "/api/registryRemove", nil, `{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":"http://10.0.0.5:9999"}`, 200)
		for range 2 {
			if list := r.admin.registry.targets("g", token); len(list) != 2 {
				t.Errorf("after it unregistered there are %+v", list)
			}
			r.must(r.admin.refresh(r.Context()))
		}
	})
}

// An executor of the latest generation does not answer a request without its group's name, and the
// generation of a listed address is unknown.
func TestAListedExecutorIsAskedWithTheNameOfItsGroup(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.serveStub("10.0.0.5:9999")
		e.answer = func(path string, _ *xxl.Trigger) string {
			switch {
			case e.header.Get(xxl.HeaderGroup) != "g":
				return `{"code":500,"msg":"Illegal Argument."}`
			case path == "/run":
				return `{"code":500,"msg":"invalid request, uri-mapping(/run) not found."}`
			}
			return ""
		}
		r.list(job.Executors{Name: "g", Addresses: []string{"http://10.0.0.5:9999"}})
		a := r.run(plain + "\nplace: {strategy: first_idle}")
		if !a.result.HandedOver || e.sent("/idleBeat") != 1 || e.sent("/trigger") != 1 {
			t.Errorf("%+v, asked %v", a.result, e.asked)
		}
	})
}

// A listed executor that answers counts as present, although it sends no signs of life.
func TestAListedExecutorThatWasNeverSeenBusyHasLonger(t *testing.T) {
	bubble(t, func(r *rig) {
		r.serveStub("10.0.0.5:9999")
		r.list(job.Executors{Name: "g", Addresses: []string{"http://10.0.0.5:9999"}})
		r.keep(r.admin)
		a := r.run(plain + "\npolicy: {lost_after: 60s}")
		time.Sleep(9 * time.Minute)
		r.wants(a, "", "")
		b := r.run(plain + "\npolicy: {overlap: allow, lost_after: 60s}")
		r.cut("10.0.0.5:9999")
		time.Sleep(3 * time.Minute)
		r.wants(a, job.OutcomeLost, "not reached")
		r.wants(b, job.OutcomeLost, "not reached")
	})
}

func TestListedLoopbackAddressesAreClosedUnlessAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Settings: Settings{Tokens: []string{token}}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for typed, want := range map[bool]string{true: "a loopback address", false: "refused"} {
			_, err := a.current.Load().caller.ask(t.Context(), target{group: "g", address: "http://127.0.0.1:1", typed: typed}, xxl.PathBeat, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("typed %v: %v, want %q", typed, err, want)
			}
		}
	})
}

func TestAGroupMayHaveATokenOfItsOwn(t *testing.T) {
	const own = "the-token-of-group-g-alone"
	bubble(t, func(r *rig) {
		value, broken := own, error(nil)
		r.admin.secret = func(_ context.Context, namespace, name string) (string, error) {
			if namespace != "shop" || name != "orders" {
				t.Errorf("asked for %s/%s", namespace, name)
			}
			return value, broken
		}
		other := r.executor("other", "10.0.0.6:9999", "")
		r.list(job.Executors{Namespace: "shop", Name: "x", Group: "g", Token: "orders"})
		e := r.executor("g", "10.0.0.5:9999", "")
		as := func(token string) http.Header { return http.Header{xxl.HeaderToken: {token}} }
		registration := func(group string) string {
			return fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":%q,"registryValue":"http://10.0.0.5:9999"}`, group)
		}
		r.say(r.admin, "/api/registry", as(own), registration("g"), 200)
		if answer := r.say(r.admin, "/api/registry", as(own), registration("other"), 500); answer.Message != string(xxl.RefusedToken) {
			t.Errorf("with the token of another group: %s", answer.Message)
		}
		a := r.run(plain)
		b := r.run(`run: {xxl: {group: other, handler: h}}`)
		if e.header.Get(xxl.HeaderToken) != own || other.header.Get(xxl.HeaderToken) != token {
			t.Errorf("shown were %s and %s", e.header.Get(xxl.HeaderToken), other.header.Get(xxl.HeaderToken))
		}
		// Results of other groups are ignored, and the rest is accepted.
		r.say(r.admin, "/api/callback", as(own), `[{"logId":1,"handleCode":200},{"logId":2,"handleCode":500}]`, 200)
		r.wants(a, job.OutcomeSucceeded, "")
		r.wants(b, "", "")

		// An unreadable secret keeps its former value; a new value counts within a minute.
		broken = fmt.Errorf("the vault is sealed")
		time.Sleep(groupTokenLife)
		r.must(r.admin.refresh(r.Context()))
		r.say(r.admin, "/api/registry", as(own), registration("g"), 200)
		value, broken = "the-next-token-of-group-g", nil
		time.Sleep(groupTokenLife)
		r.must(r.admin.refresh(r.Context()))
		r.say(r.admin, "/api/registry", as(own), registration("g"), 500)
		r.say(r.admin, "/api/registry", as(value), registration("g"), 200)
	})
}

func TestARunByHandGoesToTheExecutorThatWasChosen(t *testing.T) {
	bubble(t, func(r *rig) {
		first, second := r.executor("g", "10.0.0.5:9999", ""), r.executor("g", "10.0.0.6:9999", "")
		j := r.put(plain + "\nplace: {strategy: first}\npolicy: {overlap: allow}")
		r.params = map[string]string{job.ExecutorParam: "http://10.0.0.6:9999"}
		if a := r.runOf(j, 0, 0); !a.result.HandedOver || first.sent("/run") != 0 || second.sent("/run") != 1 {
			t.Errorf("%+v, sent %v and %v", a.result, first.asked, second.asked)
		}
		if sent := second.last(); sent.Params != "full" || sent.Total != 1 {
			t.Errorf("sent %+v", sent)
		}
		// A registration at another node counts at once.
		third := r.serveStub("10.0.0.7:9999")
		r.must(r.store.Register(r.Context(), []store.Registration{{Kind: Kind, Group: "g", Address: "http://10.0.0.7:9999"}}))
		r.params = map[string]string{job.ExecutorParam: "http://10.0.0.7:9999"}
		if a := r.runOf(j, 0, 0); !a.result.HandedOver || third.sent("/run") != 1 {
			t.Errorf("%+v, sent %v", a.result, third.asked)
		}
		r.params = map[string]string{job.ExecutorParam: "http://10.0.0.6:9999"}
		r.cut("10.0.0.6:9999") // no other executor gets it
		r.wants(r.runOf(j, 0, 0), job.OutcomeFailed, "can be reached: http://10.0.0.6:9999 (connection refused)")
		r.say(r.admin, "/api/registryRemove", nil, `{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":"http://10.0.0.6:9999"}`, 200)
		r.wants(r.runOf(j, 0, 0), job.OutcomeFailed, "started for the executor http://10.0.0.6:9999, which is not registered in the group g any more")
	})
}
