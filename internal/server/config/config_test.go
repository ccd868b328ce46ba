package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
)

// environment returns a function that looks up variables.
func environment(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestMachineProvidesLabels(t *testing.T) {
	for _, c := range []struct {
		said     map[string]string
		hostname string
		want     map[string]string
	}{
		{nil, "machine", map[string]string{"arch": runtime.GOARCH, "host": "machine"}},
		{map[string]string{"zone": "a"}, "machine", map[string]string{"arch": runtime.GOARCH, "host": "machine", "zone": "a"}},
		{map[string]string{"host": "b", "arch": "vax"}, "machine", map[string]string{"arch": "vax", "host": "b"}},
		{nil, "", map[string]string{"arch": runtime.GOARCH}},
	} {
		if got := (config.Server{Labels: c.said}).Filled(environment(), c.hostname, false).Labels; !maps.Equal(got, c.want) {
			t.Errorf("%v on %q: %v, want %v", c.said, c.hostname, got, c.want)
		}
	}
	// The machine's labels do not count in the limit of configured ones.
	many := config.Server{Data: "/data", Labels: map[string]string{}}
	for i := range 64 {
		many.Labels[fmt.Sprint("label", i)] = ""
	}
	if err := many.Filled(environment(), "machine", false).Check(); err != nil {
		t.Errorf("with 64 labels of its own: %v", err)
	}
}

func TestFlagsOverrideEnvironmentAndFile(t *testing.T) {
	file := config.Server{Data: "file", Name: "file", Capacity: 1, Listen: "127.0.0.1:1", Hosts: []config.Host{"a"}}
	env := config.Server{Data: "env"}
	flags := config.Server{Capacity: 3}
	got := flags.Over(env).Over(file).Filled(environment(), "machine", true)
	if got.Data != "env" || got.Name != "file" || got.Capacity != 3 || got.Listen != "127.0.0.1:1" || len(got.Hosts) != 1 {
		t.Errorf("the configuration is %+v", got)
	}
	if got.Store != config.Store("sqlite:env/belfry.db") || got.LogFormat != config.LogText || got.Timezone != "UTC" {
		t.Errorf("the defaults are %+v", got)
	}
	if name := (config.Server{}).Filled(environment(), "machine", false).Name; name != "machine" {
		t.Errorf("the name is %q", name)
	}
}

func TestFlagFalseOverridesFileTrue(t *testing.T) {
	no, yes := config.Server{PlainHTTP: new(false)}, config.Server{PlainHTTP: new(true)}
	for _, c := range []struct {
		flags, file config.Server
		want        bool
	}{
		{no, yes, false}, {yes, no, true}, {config.Server{}, yes, true}, {config.Server{}, no, false}, {config.Server{}, config.Server{}, false},
	} {
		if got := c.flags.Over(config.Server{}).Over(c.file); got.AllowsPlainHTTP() != c.want {
			t.Errorf("of the flag %v and the file %v comes %v", c.flags.PlainHTTP, c.file.PlainHTTP, !c.want)
		}
	}
}

func TestDefaultDataDirectory(t *testing.T) {
	home := "/home/ann/.local/state/belfry"
	if os.Geteuid() == 0 {
		home = "/var/lib/belfry"
	}
	for state, want := range map[string]string{"": home, "not/absolute": home, "/state": "/state/belfry"} {
		if got := config.DefaultData(environment("HOME", "/home/ann", "XDG_STATE_HOME", state)); got != want {
			t.Errorf("with XDG_STATE_HOME=%s the data are in %s, want %s", state, got, want)
		}
	}
}

func TestWithoutAHomeADirectoryMustBeNamed(t *testing.T) {
	s := config.Server{Data: filepath.Join(".local", "state", "belfry"), Listen: config.DefaultListen}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a directory that is another one in each folder: %v", err)
	}
	s.Data = "/srv/belfry"
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestDefaultsOfNamespacesAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	read := func(text string) (config.Server, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.ReadServer(path, "belfry.yaml")
	}
	s, err := read("timezone: UTC\ndefaults:\n  policy: {timeout: 1h}\n  namespaces:\n    web: {timezone: Asia/Tokyo, policy: {timeout: 5m}}\n")
	if err != nil {
		t.Fatal(err)
	}
	web := s.JobDefaults().Namespaces["web"]
	if web.Timezone != "Asia/Tokyo" || web.Policy.Timeout.String() != "5m" || s.JobDefaults().Policy.Timeout.String() != "1h" {
		t.Errorf("the defaults are %+v", s.JobDefaults())
	}
	for _, wrong := range []string{"web: {polcy: {}}", "web: {timezone: Moon}", "web: {policy: {timeout: soon}}"} {
		if _, err := read("defaults:\n  namespaces:\n    " + wrong + "\n"); err == nil || !strings.Contains(err.Error(), "defaults.namespaces.web.") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestKeysOfMappingsAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	for _, c := range []struct{ text, want string }{
		{"defaults:\n  namespaces:\n    Web: {timezone: UTC}\n", `belfry.yaml:3:10: defaults.namespaces.Web: "Web" is not a name`},
		{"name: a\nlabels:\n  a zone: b\n", `belfry.yaml:3:11: labels["a zone"]: "a zone" is not the name of a label`},
		{"labels: {zone: \"a\\nb\"}\n", `belfry.yaml:1:16: labels.zone: is not the value of a label`},
		{"shell:\n  env: {A=B: c}\n", `belfry.yaml:2:14: shell.env["A=B"]: "A=B" is not the name of an environment variable`},
		{"defaults: {namespaces: {web.2: {}}}\nlabels: {Zone/a: \"\"}\nshell: {env: {_a1: \"\", BELFRY_SERVER: http://a}}\n", ""},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.ReadServer(path, "belfry.yaml")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %s", c.text, err, c.want)
		}
	}
}

func TestStoreIsInTheDataDirectoryByAnyName(t *testing.T) {
	for _, data := range []string{"/a", "b", "/a b/c:d", "c:d", "/100%41", "100%41", "/a?b#c", "a?b#c", "/büro", "büro"} {
		s := config.Server{Data: data}.Filled(func(string) string { return "" }, "", false)
		if want := filepath.Join(data, "belfry.db"); s.Store.File() != want {
			t.Errorf("the store in %s is %s, which is the file %s", data, s.Store, s.Store.File())
		}
	}
	dir := filepath.Join(t.TempDir(), "a#b%41")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "belfry.yaml")
	if err := os.WriteFile(path, []byte("store: sqlite:x%3F.db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := config.ReadServer(path, "belfry.yaml"); err != nil || s.Store.File() != filepath.Join(dir, "x?.db") {
		t.Errorf("the store beside %s is %s, %v", path, s.Store.File(), err)
	}
}

func TestFileNamesBeginBesideTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "belfry.yaml")
	if err := os.WriteFile(path, []byte("data: keep\ntls: {cert: c.pem, key: /k.pem}\nstore: sqlite:x.db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := config.ReadServer(path, "belfry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s.Data != filepath.Join(dir, "keep") || s.TLS.Cert != filepath.Join(dir, "c.pem") || s.TLS.Key != "/k.pem" || s.Store.File() != filepath.Join(dir, "x.db") {
		t.Errorf("the configuration is %+v", s)
	}
}

func TestOthersReachAServerOnlyWithTLS(t *testing.T) {
	for address, loopback := range map[config.Address]bool{
		"127.0.0.1:8420": true, "127.5.5.5:1": true, "[::1]:1": true, "localhost:1": true,
		":8420": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "example.org:1": false, "localhost.example.org:1": false,
	} {
		if address.Loopback() != loopback {
			t.Errorf("%s: loopback is %v", address, !loopback)
		}
		if err := (config.Server{Listen: address}).Check(); (err == nil) != loopback {
			t.Errorf("%s gives the error %v", address, err)
		}
		if err := (config.Server{Listen: address, PlainHTTP: new(true)}).Check(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if err := (config.Server{Listen: address, TLS: config.TLS{Cert: "c", Key: "k"}}).Check(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestStoresHaveOneKind(t *testing.T) {
	for text, file := range map[string]string{
		"sqlite:/a/b.db": "/a/b.db", "sqlite:///a/b.db": "/a/b.db", "sqlite:b.db": "b.db",
		"sqlite:/a%3Fb%25.db": "/a?b%.db", "sqlite:a%23b.db": "a#b.db", "sqlite:a%zz.db": "", "sqlite:/a%zz.db": "",
		"": "", "b.db": "", "sqlite:": "", "sqlite://host/b": "", "sqlite:/a?secret": "", "://secret": "", "postgres:secret": "", "mysql:secret": "", "mysql://h/d#secret": "",
		"oracle://u:secret@h/d": "", "postgres://h/d?password=secret;sslmode=verify-full": "", "mysql://h/d?ssl-ca=/secret%zz": "",
	} {
		var s config.Store
		err := s.UnmarshalText([]byte(text))
		if (err == nil) != (file != "") || s.File() != file {
			t.Errorf("%q is the file %q, %v", text, s.File(), err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q shows what it must not: %v", text, err)
		}
	}
}

func TestClientsFindTheServerOfTheirMachine(t *testing.T) {
	for address, url := range map[string]string{"127.0.0.1:1": "http://127.0.0.1:1", "0.0.0.0:1": "http://127.0.0.1:1", "[::]:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1"} {
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.LocalURL(at, false); got != url {
			t.Errorf("%s is %s, want %s", address, got, url)
		}
	}
}

func TestTokenIsSentOnlyToItsServer(t *testing.T) {
	home := t.TempDir()
	data := filepath.Join(home, "data")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(home, ".config", "belfry"), 0o700))
	must(os.MkdirAll(data, 0o700))
	must(os.WriteFile(filepath.Join(home, ".config", "belfry", "config.yaml"), []byte(`
current: work
contexts:
  work: {server: "https://belfry.example", token: of-work, namespace: web}
  home: {server: "http://127.0.0.1:7"}
`), 0o600))
	must(config.WriteAddress(data, config.Local{URL: "http://127.0.0.1:8", TokenFile: filepath.Join(data, "token")}))
	readToken := func(path string) (string, error) {
		if path != filepath.Join(data, "token") {
			return "", fs.ErrNotExist
		}
		return "of-data", nil
	}
	tests := []struct {
		name                     string
		asked                    config.Asked
		env                      []string
		server, token, namespace string
	}{
		{"the current context", config.Asked{}, nil, "https://belfry.example", "of-work", "web"},
		{"another context without a token", config.Asked{Context: "home"}, nil, "http://127.0.0.1:7", "", "default"},
		{"another server gets no token of the context", config.Asked{Server: "https://other.example"}, nil, "https://other.example", "", "web"},
		{"the server of the context by its address", config.Asked{Server: "https://belfry.example/"}, nil, "https://belfry.example/", "of-work", "web"},
		{"the server of this machine", config.Asked{Server: "http://127.0.0.1:8"}, nil, "http://127.0.0.1:8", "of-data", "web"},
		{"the server of this machine as localhost", config.Asked{Server: "http://localhost:8"}, nil, "http://127.0.0.1:8", "of-data", "web"},
		{"another port of localhost", config.Asked{Server: "http://localhost:9"}, nil, "http://localhost:9", "", "web"},
		{"another port of this machine", config.Asked{Server: "http://127.0.0.1:9"}, nil, "http://127.0.0.1:9", "", "web"},
		{"the environment", config.Asked{}, []string{"BELFRY_SERVER", "http://127.0.0.1:9", "BELFRY_TOKEN", "of-env", "BELFRY_NAMESPACE", "ops"}, "http://127.0.0.1:9", "of-env", "ops"},
		{"a flag over the environment", config.Asked{Server: "http://127.0.0.1:8", Namespace: "n"}, []string{"BELFRY_SERVER", "http://127.0.0.1:9", "BELFRY_NAMESPACE", "ops"}, "http://127.0.0.1:8", "of-data", "n"},
		{"the data directory by a flag", config.Asked{Data: data}, nil, "http://127.0.0.1:8", "of-data", "web"},
		{"the same over the environment", config.Asked{Data: data}, []string{"BELFRY_SERVER", "http://127.0.0.1:9", "BELFRY_TOKEN", "of-env"}, "http://127.0.0.1:8", "of-data", "web"},
		{"another server beside it", config.Asked{Data: data, Server: "http://127.0.0.1:9"}, []string{"BELFRY_TOKEN", "of-env"}, "http://127.0.0.1:9", "of-env", "web"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := config.Connect(tt.asked, environment(append(tt.env, "HOME", home, "BELFRY_DATA", data)...), readToken)
			must(err)
			file := filepath.Join(home, ".config", "belfry", "config.yaml")
			if want := map[string]string{"of-work": file, "of-data": filepath.Join(data, "token"), "of-env": "BELFRY_TOKEN"}[tt.token]; c.TokenFrom != want {
				t.Errorf("the token is from %q, want %q", c.TokenFrom, want)
			}
			if c.Server != tt.server || c.Token != tt.token || c.Namespace != tt.namespace || (c.NoToken == "") != (c.Token != "") {
				t.Errorf("the connection is %+v", c)
			}
		})
	}
	if _, err := config.Connect(config.Asked{Data: home}, environment("HOME", home), readToken); !errors.Is(err, config.ErrNoServer) {
		t.Errorf("a directory without a server gives the error %v", err)
	}
	empty := environment("HOME", t.TempDir(), "BELFRY_DATA", data)
	if c, err := config.Connect(config.Asked{}, empty, readToken); err != nil || c.Server != "http://127.0.0.1:8" || c.Token != "of-data" {
		t.Errorf("%v, without any word the connection is %+v", err, c)
	}
	must(config.RemoveAddress(data))
	c, err := config.Connect(config.Asked{}, empty, readToken)
	if err != nil || c.Server != config.DefaultServer || c.Token != "" || !strings.HasPrefix(c.NoToken, "name the data directory of your server with --data") {
		t.Errorf("%v, without a server the connection is %+v", err, c)
	}
	if c, err = config.Connect(config.Asked{Server: config.DefaultServer}, empty, readToken); err != nil || !strings.HasPrefix(c.NoToken, "set BELFRY_TOKEN") {
		t.Errorf("%v, to a server that was named the connection is %+v", err, c)
	}
	// Leftovers of a dead server count as nothing.
	must(os.WriteFile(filepath.Join(data, "server.json"), []byte(`{"url": "http://127.0.0.1:8", "token_file": "x", "pid": 2147483646}`), 0o600))
	if c, err := config.Connect(config.Asked{}, empty, readToken); err != nil || c.Server != config.DefaultServer || c.Token != "" {
		t.Errorf("%v, after the death of a server the connection is %+v", err, c)
	}
	denied := func(string) (string, error) { return "", errors.New("it can be read by others") }
	must(config.WriteAddress(data, config.Local{URL: "http://127.0.0.1:8", TokenFile: "x", SharedUser: "ann"}))
	if user, running := config.RunningAs(data); user != "ann" || !running {
		t.Errorf("the server runs: %v, and shares the user %q with commands, want ann", running, user)
	}
	if _, err := config.Connect(config.Asked{}, empty, denied); err == nil {
		t.Error("a token that others can read is taken")
	}
}

func TestTheSessionOfAPersonIsSentOnlyToItsServer(t *testing.T) {
	home := t.TempDir()
	data := filepath.Join(home, "data")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(home, ".config", "belfry"), 0o700))
	must(os.MkdirAll(data, 0o700))
	must(os.WriteFile(filepath.Join(home, ".config", "belfry", "config.yaml"), []byte(`contexts: {work: {server: "https://belfry.example", token: of-work}}`), 0o600))
	must(config.WriteAddress(data, config.Local{URL: "http://127.0.0.1:8", TokenFile: "token"}))
	env := environment("HOME", home, "BELFRY_DATA", data)
	readToken := func(string) (string, error) { return "of-data", nil }
	file := config.SessionsFile(env)
	must(config.KeepSession("https://belfry.example/", config.Session{Token: "of-ann", Person: "sso:ann"}, env))
	must(config.KeepSession("http://127.0.0.1:8", config.Session{Token: "of-bob", Person: "sso:bob"}, env))
	for _, c := range []struct {
		what                string
		asked               config.Asked
		more                string
		token, person, from string
	}{
		{"before the token of a context", config.Asked{Context: "work"}, "", "of-ann", "sso:ann", file},
		{"before the token in a data directory", config.Asked{Server: "http://127.0.0.1:8"}, "", "of-bob", "sso:bob", file},
		{"a data directory by a flag", config.Asked{Data: data}, "", "of-data", "", "token"},
		{"BELFRY_TOKEN", config.Asked{Context: "work"}, "of-env", "of-env", "", "BELFRY_TOKEN"},
		{"another server", config.Asked{Server: "https://belfry.example:444"}, "", "", "", ""},
	} {
		got, err := config.Connect(c.asked, environment("HOME", home, "BELFRY_DATA", data, "BELFRY_TOKEN", c.more), readToken)
		if err != nil || got.Token != c.token || got.Person != c.person || got.TokenFrom != c.from {
			t.Errorf("%s: %+v, %v", c.what, got, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of sessions: %v, %v", info, err)
	}
	must(config.KeepSession("https://belfry.example", config.Session{}, env))
	if got, err := config.Connect(config.Asked{Context: "work"}, env, readToken); err != nil || got.Token != "of-work" {
		t.Errorf("a session that was forgotten: %+v, %v", got, err)
	}
	must(os.Chmod(file, 0o640))
	if _, err := config.Connect(config.Asked{}, env, readToken); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("sessions that others can read: %v", err)
	}
}

func TestStoreURLIsShownWithoutPassword(t *testing.T) {
	for text, want := range map[string]struct{ kind, shown string }{
		"postgres://u:secret@h/d?sslmode=disable":  {config.Postgres, "postgres://u:xxxxx@h/d?sslmode=disable"},
		"postgresql://h/d?password=secret&user=u":  {config.Postgres, "postgresql://h/d?password=xxxxx&user=u"},
		"postgres://h/d?sslpassword=secret":        {config.Postgres, "postgres://h/d?sslpassword=xxxxx"},
		"postgres://u@h/d":                         {config.Postgres, "postgres://u@h/d"},
		"mysql://u:secret@h:3307/d?ssl-mode=a":     {config.MySQL, "mysql://u:xxxxx@h:3307/d?ssl-mode=a"},
		"mysql://u@h/d":                            {config.MySQL, "mysql://u@h/d"},
		"etcd://u:secret@a:2379,b:2379,c/p?tls=on": {config.Etcd, "etcd://u:xxxxx@a:2379,b:2379,c/p?tls=on"},
		"etcd://a,b:1/p":                           {config.Etcd, "etcd://a,b:1/p"},
		"etcd://a":                                 {config.Etcd, "etcd://a"},
		"redis://u:secret@a:26379,b/p?sentinel=m":  {config.Redis, "redis://u:xxxxx@a:26379,b/p?sentinel=m"},
		"rediss://a/p":                             {config.Redis, "rediss://a/p"},
	} {
		var s config.Store
		if err := s.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if s.Shown() != want.shown || s.Kind() != want.kind || s.File() != "" || s.Password() != strings.Contains(text, "secret") {
			t.Errorf("%s is shown as %s, a store of the kind %s with the file %q and a password: %v", text, s.Shown(), s.Kind(), s.File(), s.Password())
		}
	}
}

func TestSchemeOfTheStoreURLIgnoresCase(t *testing.T) {
	for text, want := range map[string]config.Store{
		"MySQL://u@h/D":      "mysql://u@h/D",
		"POSTGRES://u@h/D":   "postgres://u@h/D",
		"PostgreSQL://u@h/D": "postgresql://u@h/D",
		"SQLite:/A/b.db":     "sqlite:/A/b.db",
	} {
		var s config.Store
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%s is %q, %v, want %q", text, s, err, want)
		}
	}
}

func TestWrongStoreURLIsRefusedWithoutItsPassword(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "is not the URL of a store",
		"belfry.db":                       "is not the URL of a store",
		"postgres://u:se%cret@h/d":        "in the password %, /, ?, # and @ are written %25",
		"mysql://u:se#cret@h:3306/d":      "mysql://user:password@host:port/database",
		"mysql://u:cret@tcp(h:3306)/d":    "mysql://user:password@host:port/database",
		"Postgres://u:cret@h:port/d":      "the port is a number",
		"postgres:/d":                     "has a host, a database and parameters",
		"postgres://":                     "has a host, a database and parameters",
		"postgresql:///":                  "has a host, a database and parameters",
		"postgres://u@":                   "has a host, a database and parameters",
		"mysql://":                        "has a host, a database and parameters",
		"mysql://h":                       "has a host, a database and parameters",
		"mysql:///d":                      "has a host, a database and parameters",
		"mysql://h/?ssl-mode=DISABLED":    "has a host, a database and parameters",
		"etcd://":                         "has hosts, a prefix and parameters",
		"etcd://:2379":                    "has hosts, a prefix and parameters",
		"redis://":                        "has hosts, a prefix and parameters",
		"redis://:6379/0":                 "has hosts, a prefix and parameters",
		"mysql:d":                         "has a host, a database and parameters",
		"mariadb://u:cret@h/d":            "mysql, which is for MariaDB as well",
		"jdbc:mysql://h/d?password=cret":  `a store of the kind "jdbc" is not known`,
		"sqlite:":                         "has a path and nothing else",
		"postgres://u@h/d?password=cret;": "joined by &",
	} {
		var s config.Store
		if err := s.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v, want an error that says %q", text, err, want)
		}
	}
}

func TestRolesAreKnownAndUnique(t *testing.T) {
	for text, want := range map[string]string{
		"planner":               "",
		"api, worker,planner":   "",
		"":                      `"" is not a role, allowed are planner, worker, api`,
		"worker,":               `"" is not a role`,
		"planner,boss":          `"boss" is not a role`,
		"worker,planner,worker": "roles: worker is named twice",
	} {
		roles, err := config.ParseRoles(text)
		if err == nil {
			err = config.Server{Roles: roles}.Filled(environment(), "machine", false).Check()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("roles %q: %v, want %q", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	for text, want := range map[string]string{
		"roles: [worker, api]":        "",
		"roles: worker":               "",
		"roles: []":                   "roles: is an empty list",
		"roles: [worker, boss]":       `roles[1]: "boss" is not known; allowed: planner, worker, api`,
		"roles: \"\"":                 `roles: "" is not known`,
		"roles: [api, api, api, api]": "roles: has 4 entries, at most 3 are allowed",
	} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := config.ReadServer(path, "belfry.yaml")
		if want == "" && (err != nil || !s.Has(store.RoleWorker)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	filled := config.Server{Roles: []config.Role{store.RoleWorker}}.Over(config.Server{Roles: config.AllRoles()})
	if filled.Has(store.RoleAPI) || !filled.Has(store.RoleWorker) {
		t.Errorf("flags leave the roles of the file: %v", filled.Roles)
	}
	if all := (config.Server{}).Filled(environment(), "machine", false); len(all.Roles) != 3 {
		t.Errorf("who says nothing has the roles %v", all.Roles)
	}
}

func TestHistoriesHaveOneKind(t *testing.T) {
	for text, want := range map[string]struct{ kind, shown string }{
		"sqlite:/a/b.db":                                {config.SQLite, "sqlite:/a/b.db"},
		"postgres://u:secret@h/d":                       {config.Postgres, "postgres://u:xxxxx@h/d"},
		"mysql://u:secret@h/d":                          {config.MySQL, "mysql://u:xxxxx@h/d"},
		"mongodb://u:secret@a:27017,b/d?replicaSet=rs0": {config.MongoDB, "mongodb://u:xxxxx@a:27017,b/d?replicaSet=rs0"},
		"mongodb+srv://u:secret@h/d":                    {config.MongoDB, "mongodb+srv://u:xxxxx@h/d"},
		"":                                              {}, "etcd://h": {}, "oracle://u:secret@h/d": {}, "mongodb:secret": {}, "mongodb://": {}, "sqlite:": {},
		"mongodb://u:sec%ret@h/d": {}, "mongodb://h/d?a=1;secret": {},
	} {
		var h config.History
		err := h.UnmarshalText([]byte(text))
		if (err == nil) != (want.kind != "") {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if err != nil {
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q shows what it must not: %v", text, err)
			}
			continue
		}
		if h.Kind() != want.kind || h.Shown() != want.shown {
			t.Errorf("%q is of the kind %q and shown as %q", text, h.Kind(), h.Shown())
		}
	}
}

func TestHistoryRequiresAControlStore(t *testing.T) {
	check := func(control, history string) error {
		s := config.Server{}
		if err := s.Store.UnmarshalText([]byte(control)); err != nil {
			t.Fatal(err)
		}
		if err := s.History.UnmarshalText([]byte(history)); err != nil {
			t.Fatal(err)
		}
		s.Data = "/var/lib/belfry"
		return s.Filled(func(string) string { return "" }, "h", false).Check()
	}
	if err := check("etcd://h", "postgres://h/d"); err != nil {
		t.Errorf("etcd with PostgreSQL: %v", err)
	}
	for _, control := range []string{"sqlite:/a.db", "postgres://h/d", "mysql://h/d"} {
		if err := check(control, "postgres://h/d"); err == nil || !strings.Contains(err.Error(), "history: a store of the kind") {
			t.Errorf("%s with PostgreSQL: %v", control, err)
		}
	}
}

func TestACallbackURLIsAnAddress(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://belfry.example.com": true, "http://10.0.0.5:8420/behind": true, "https://[::1]:8420": true,
		"": false, "belfry.example.com": false, "ftp://a": false, "https://": false,
		"https://u:secret@a": false, "https://a?secret=1": false, "https://a#b": false,
	} {
		var u config.URL
		err := u.UnmarshalText([]byte(text))
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if host := config.URL("https://belfry.example.com:8420/x").Host(); host != "belfry.example.com" {
		t.Errorf("the host is %q", host)
	}
}
