package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
)

// Everyone with the link of a badge sees how its job is, and nothing else, until the link is revoked.
func TestABadgeShowsAJobToEveryoneWithItsLink(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"namespace": "shop", "name": "a", "labels": {"team": "x<y"}, "run": {"external": {}}}`)
	see := func(path string, want int) string {
		t.Helper()
		w := s.from("192.0.2.9:1", "", "GET", path, "")
		if w.Code != want {
			t.Fatalf("GET %s: status %d, want %d: %s", path, w.Code, want, w.Body)
		}
		return w.Body.String()
	}
	one := ok[client.Badge](s, "POST", "/api/v1/badges", `{"job": "shop/a"}`)
	all := ok[client.Badge](s, "POST", "/api/v1/badges", `{"label": "team=x<y"}`)
	if text := see(one.JSON, http.StatusOK); !strings.Contains(text, `"message":"never ran"`) {
		t.Errorf("the badge of a new job says %s", text)
	}
	for _, c := range []struct{ report, one, all string }{
		{"succeeded", "passing", "passing"}, {"failed", "failing, 1 in a row", "1 failing"},
	} {
		ok[client.Reported](s, "POST", "/api/v1/jobs/shop/a/report", `{"state": "`+c.report+`"}`)
		s.pass(time.Minute)
		if text := see(one.JSON, http.StatusOK); !strings.Contains(text, `"label":"shop/a","message":"`+c.one+`"`) {
			t.Errorf("after %s the badge of the job says %s", c.report, text)
		}
		if text := see(all.SVG, http.StatusOK); !strings.Contains(text, c.all+"</text>") || strings.Contains(text, "x<y") {
			t.Errorf("after %s the badge of the label says %s", c.report, text)
		}
	}
	for path, want := range map[string]string{one.JSON: `"message":"连续失败 1 次"`, one.SVG: "aria-label=\"shop/a: 连续失败 1 次\"", all.SVG: "1 个任务失败</text>"} {
		if text := see(path+"?lang=zh", http.StatusOK); !strings.Contains(text, want) {
			t.Errorf("in Chinese the badge says %s, want %s", text, want)
		}
	}
	if list := ok[client.Page[client.Badge]](s, "GET", "/api/v1/badges", "").Items; len(list) != 2 || list[0].Label != "team=x<y" || list[1].Job != "shop/a" || list[1].SVG != "" {
		t.Errorf("the badges are %+v", list)
	}
	again := ok[client.Badge](s, "POST", "/api/v1/badges", `{"job": "shop/a"}`)
	see(one.JSON, http.StatusNotFound)
	see(again.JSON, http.StatusOK)
	ok[client.Badge](s, "POST", "/api/v1/badges:revoke", `{"job": "shop/a"}`)
	see(again.JSON, http.StatusNotFound)
	if w := s.from("192.0.2.9:1", "Bearer "+strings.TrimSuffix(strings.TrimPrefix(all.JSON, "/badge/"), ".json"), "GET", "/api/v1/jobs", ""); w.Code/100 == 2 {
		t.Errorf("the secret of a badge lists jobs: %d", w.Code)
	}
	if w := s.call("POST", "/api/v1/badges", `{"job": "shop/a", "label": "team=x"}`); w.Code != http.StatusUnprocessableEntity && w.Code != http.StatusBadRequest {
		t.Errorf("a badge of two things: %d", w.Code)
	}
}
