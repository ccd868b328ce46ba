package httpapi_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/internal/httpapi"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// unreadableStore has a clock and cannot read.
type unreadableStore struct{ *memory.Store }

func (unreadableStore) Sessions(context.Context) ([]store.Session, error) {
	return nil, errors.New("the disk is gone, with its secrets")
}

func TestANodeWhoseStoreCannotReadIsAliveAndNotReady(t *testing.T) {
	s := unreadableStore{memory.New(memory.Options{})}
	handler, err := httpapi.Handler(httpapi.Config{Store: s, Tokens: auth.New(s, nil)})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/livez":  {200, "ok\n"},
		"/readyz": {503, "the store does not answer\n"},
	} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want.status || w.Body.String() != want.text || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s has the status %d: %q", path, w.Code, w.Body)
		}
	}
}
