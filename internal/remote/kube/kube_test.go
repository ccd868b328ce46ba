package kube

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAPodUsesItsServiceAccount(t *testing.T) {
	t.Parallel()
	var token, path string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, path = r.Header.Get("Authorization"), r.URL.Path
		fmt.Fprint(w, `{"items":[]}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(u.Host)
	getenv := func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[name]
	}
	if _, err := inCluster(dir, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "not in a pod") {
		t.Errorf("outside of a pod: %v", err)
	}
	if _, err := inCluster(dir, getenv); err == nil || !strings.Contains(err.Error(), "no service account") {
		t.Errorf("without an account: %v", err)
	}
	write("ca.crt", "none")
	write("namespace", "shop\n")
	if _, err := inCluster(dir, getenv); err == nil || !strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("without a certificate: %v", err)
	}
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	c, err := inCluster(dir, getenv)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Pods(t.Context(), c.Namespace, "a"); err == nil {
		t.Error("a pod without a token was answered")
	}
	for _, text := range []string{"one", "two"} { // the cluster replaces it
		write("token", text+"\n")
		if _, err := c.Pods(t.Context(), c.Namespace, "a"); err != nil || token != "Bearer "+text || path != "/api/v1/namespaces/shop/pods" {
			t.Errorf("the token was %q at %s: %v", token, path, err)
		}
	}
}

func TestRefusalsAreToldFromOutages(t *testing.T) {
	t.Parallel()
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"kind":"Status","message":"`+strings.Repeat("x", 2*messageMax)+`"}`)
	}))
	defer server.Close()
	c := &Client{server: server.URL, http: server.Client()}
	for _, row := range []struct {
		status                           int
		away, refused, notFound, existed bool
	}{
		{500, true, false, false, false}, {503, true, false, false, false}, {429, true, false, false, false}, {401, false, false, false, false},
		{400, false, true, false, false}, {403, false, true, false, false}, {422, false, true, false, false}, {404, false, true, true, false}, {409, false, false, false, true},
	} {
		status = row.status
		err := c.CreateJob(t.Context(), "shop", nil)
		if IsAway(err) != row.away || IsRefusal(err) != row.refused || IsNotFound(err) != row.notFound || IsConflict(err) != row.existed || len(err.Error()) > messageMax+200 {
			t.Errorf("status %d is %v", row.status, err)
		}
	}
	server.Close()
	if _, err := c.Log(t.Context(), "shop", "a", "main", time.Time{}); !IsAway(err) || IsRefusal(err) {
		t.Errorf("no answer is %v", err)
	}
}
