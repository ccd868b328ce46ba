package archtest

import "strings"

// wing is a group of packages in common folders. Packages import from their own wing and lower
// wings.
type wing struct {
	name string
	// paths are packages, and with a slash at the end all packages below a folder. The longest
	// that fits a package counts.
	paths []string
}

// wings lists the wings from the bottom. docs/architecture.md draws them.
var wings = []wing{
	{"system", []string{"internal/sys/"}},
	{"words", []string{"internal/phrase", "cron", "job", "internal/reason"}},
	{"contracts", []string{"store", "executor"}},
	{"decisions", []string{"internal/decide/"}},
	{"stores", []string{"store/", "history/", "internal/events"}},
	{"protocols", []string{"client", "internal/remote/"}},
	{"node", []string{"internal/node/", "executor/"}},
	{"conversions", []string{"internal/cli/"}},
	{"server", []string{"internal/server/", "internal/remote/host"}},
	{"assembly", []string{"internal/node", "internal/remote", "internal/server", "internal/server/inside", "."}},
	{"command line", []string{"internal/cli", "internal/cli/doctor", "robfig", "otelbelfry", "dashboard", "metrics"}},
	{"programs", []string{"cmd/", "examples/"}},
	{"checks", []string{"internal/check/", "store/storetest", "store/storetest/", "belfrytest", "test/", "cron/internal/zonegen", "internal/server/signin/provider"}},
}

// wingOf returns the place of a package's wing in a list, or -1.
func wingOf(wings []wing, path string) (place int) {
	place, longest := -1, -1
	for i, w := range wings {
		for _, p := range w.paths {
			if (p == path || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)) && len(p) > longest {
				place, longest = i, len(p)
			}
		}
	}
	return place
}

// line has the permissions of one package.
type line struct {
	// shared packages have an effect that other packages of their wing use. Packages with other
	// effects are passed in through small interfaces.
	shared bool

	// pure packages only decide: no clock, no input or output, no goroutine, no randomness.
	// pureImports are their allowed imports.
	pure bool
	// std adds packages of the standard library to pureImports.
	std []string

	// imports are the packages of this module that it may import.
	imports []string
	// modules are the packages of other modules that it may import, with what
	// is below them. docs/dependencies.md has the reason for each.
	modules []string
	// testImports and testModules may be imported by its tests only, whatever their wing.
	testImports []string
	testModules []string
}

// table has a line for each package of the module: its line is its design
// review, and may be there before the package is. docs/architecture.md explains
// the wings.
var table = map[string]line{
	"cron": {
		pure: true,
		// The zone table is embedded, and a zone is built on first use.
		std:     []string{"embed", "sync"},
		imports: []string{"internal/phrase"},
	},
	"internal/phrase": {
		pure: true,
		// The codes are listed once, by their argument types.
		std: []string{"reflect"},
	},
	"cron/internal/zonegen": {},
	"internal/sys/spelling": {pure: true},
	"internal/cli/systemd":  {pure: true, std: []string{"embed", "path", "text/template"}},
	"job": {
		pure: true,
		// The tags of a type are parsed once, as is the embedded table of the fields of pods; netip only parses.
		std:         []string{"embed", "net/netip", "sync"},
		imports:     []string{"internal/phrase", "cron", "internal/sys/spelling"},
		modules:     []string{"go.yaml.in/yaml/v3"},
		testModules: []string{"github.com/santhosh-tekuri/jsonschema/v6"},
	},
	"internal/reason": {
		pure: true,
		// The codes are listed once, by their types.
		std:     []string{"reflect"},
		imports: []string{"internal/phrase", "job"},
	},
	"store": {
		pure: true,
		// For the signatures of its interfaces.
		std:     []string{"context"},
		imports: []string{"job"},
	},
	"executor": {
		pure: true,
		// For the signature of its interface.
		std:     []string{"context"},
		imports: []string{"internal/reason", "job"},
	},
	"internal/decide/engine": {
		pure: true,
		// Steps that share a document share its public view.
		std:     []string{"sync/atomic"},
		imports: []string{"internal/phrase", "internal/reason", "cron", "internal/decide/flow", "job", "store"},
	},
	// Package engine decides about flows by it.
	"internal/decide/flow": {
		pure:    true,
		imports: []string{"internal/reason", "job"},
	},
	"internal/server/draw": {
		pure: true,
		std:  []string{"html"}, // it escapes
	},
	"internal/server/i18n": {pure: true},
	"internal/cli/crontab": {
		pure:        true,
		imports:     []string{"internal/phrase", "cron", "job"},
		testModules: []string{"github.com/rogpeppe/go-internal"},
	},
	"internal/cli/kubernetes": {
		pure:    true,
		imports: []string{"internal/phrase", "internal/cli/crontab", "job"},
		modules: []string{"go.yaml.in/yaml/v3"},
	},
	"internal/cli/dkron": {
		pure:    true,
		imports: []string{"internal/phrase", "internal/cli/crontab", "job"},
	},
	"internal/decide/placement": {
		pure:    true,
		std:     []string{"sync"}, // Share caches the last answer
		imports: []string{"internal/reason", "job", "store"},
	},
	"internal/decide/preview": {
		pure:    true,
		imports: []string{"internal/phrase", "cron", "job"},
	},
	"internal/decide/runqueue": {
		pure:    true,
		imports: []string{"job", "store", "internal/decide/timer"},
	},
	"internal/decide/timer":     {pure: true},
	"internal/decide/nodeclock": {pure: true, imports: []string{"job"}},
	"internal/remote/xxl":       {pure: true},
	"internal/cli/xxltables": {
		pure:    true,
		imports: []string{"internal/phrase", "cron", "job"},
		// Its tests import jobs from a database.
		testImports: []string{"internal/cli/xxlmysql", "test/servers"},
		testModules: []string{"github.com/go-sql-driver/mysql"},
	},
	"internal/cli/xxlmysql": {
		imports: []string{"internal/cli/xxltables"},
		modules: []string{"github.com/go-sql-driver/mysql"},
	},
	"internal/decide/forecast": {
		pure:        true,
		testImports: []string{"cron"},
	},
	"internal/sys/clock": {
		modules: []string{"golang.org/x/sys/unix"},
	},
	"internal/server/signin": {
		shared: true, imports: []string{"store", "internal/sys/failurelog"}, testImports: []string{"internal/server/signin/provider"},
		modules: []string{"github.com/coreos/go-oidc/v3/oidc", "golang.org/x/oauth2"},
	},
	"internal/node/garbage":   {shared: true},
	"internal/sys/parallel":   {},
	"internal/sys/cache":      {},
	"internal/sys/failurelog": {testImports: []string{"internal/check/logtest"}},
	"internal/decide/planqueue": {
		// The decisions of a planner.
		pure:        true,
		imports:     []string{"job", "store", "internal/decide/runqueue", "internal/decide/engine", "internal/decide/forecast", "internal/decide/placement", "internal/decide/timer"},
		testImports: []string{"internal/decide/stripes"},
	},
	"internal/decide/stripes": {imports: []string{"job", "internal/decide/runqueue"}},
	"internal/node/output": {
		shared:      true,
		imports:     []string{"internal/reason", "job"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/decide/notification": {
		// The messages about problems, and their times.
		pure:    true,
		imports: []string{"internal/phrase", "internal/reason", "job", "store"},
	},
	"internal/node/secret": {
		// Seals values and reads them where they are.
		shared:      true,
		imports:     []string{"internal/phrase", "internal/sys/cache", "job", "store", "internal/reason", "internal/sys/spelling"},
		testImports: []string{"store/memory"},
	},
	"internal/server/notify": {
		imports:     []string{"job", "store", "internal/decide/notification", "internal/node/secret", "internal/phrase", "internal/reason", "internal/sys/failurelog"},
		testImports: []string{"store/memory", "internal/check/logtest"},
	},
	"internal/decide/account": {
		// It reads the note with the findings.
		imports: []string{"cron", "internal/reason", "job", "store"},
	},
	"internal/server/scan": {
		imports:     []string{"job", "store", "internal/decide/account", "internal/decide/engine", "internal/sys/failurelog"},
		testImports: []string{"store/memory", "store/sqlite", "internal/check/logtest"},
	},
	"internal/server/runlog": {
		imports:     []string{"job", "store", "internal/sys/failurelog"},
		testImports: []string{"internal/check/logtest"},
	},
	"internal/events": {
		shared:      true,
		imports:     []string{"job", "store"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/recovery": {imports: []string{"internal/reason", "job", "store"}, testImports: []string{"store/memory"}},
	"internal/node/work": {
		// The interface between a worker and its cluster, and its implementation on a store.
		shared:      true,
		imports:     []string{"job", "store", "internal/decide/engine", "internal/decide/placement"},
		testImports: []string{"store/memory"},
	},
	"internal/remote/wire": {
		// The messages between a server and a worker that reaches no store.
		shared:      true,
		imports:     []string{"job", "store", "internal/decide/engine"},
		testImports: []string{"client"},
	},
	"internal/node/unreported": {
		// The results that the store lacks.
		imports: []string{"job", "store", "internal/remote/spool", "internal/remote/wire"},
	},
	"internal/remote": {
		// The same interface over HTTP.
		shared:      true,
		imports:     []string{"client", "job", "store", "internal/decide/engine", "internal/node/secret", "internal/sys/failurelog", "internal/remote/wire", "internal/node/work"},
		testImports: []string{"executor", "internal/remote/host", "internal/server/auth", "internal/server/httpapi", "internal/node", "internal/node/unreported", "internal/node/output", "internal/server/service", "store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/membership": {
		imports:     []string{"job", "store", "internal/decide/engine", "internal/sys/clock", "internal/sys/failurelog"},
		testImports: []string{"store/memory", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/worker": {
		imports: []string{"internal/reason",
			"job", "store", "executor", "internal/decide/runqueue", "internal/decide/engine",
			"internal/sys/clock", "internal/decide/stripes", "internal/node/output", "internal/node/secret", "internal/sys/failurelog", "internal/remote/wire", "internal/node/work",
		},
		testImports: []string{"store/memory", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/cli/checkout": {}, // it runs git, and knows neither jobs nor servers
	"internal/cli/wrap": {
		// The part of belfry exec outside the command line.
		imports:     []string{"client", "job", "internal/remote/spool"},
		modules:     []string{"golang.org/x/sys/unix", "golang.org/x/term"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/server/callback": {imports: []string{"internal/reason", "job", "store"}},
	"internal/sys/egress":      {},
	"internal/remote/spool":    {shared: true},
	"executor/xxl": {
		imports:     []string{"internal/reason", "executor", "job", "store", "internal/node/output", "internal/sys/egress", "internal/sys/failurelog", "internal/remote/xxl"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"executor/http": {
		imports:     []string{"internal/reason", "executor", "job", "internal/sys/egress"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/sys/fdpass":       {},
	"internal/remote/kube":      {shared: true, modules: []string{"go.yaml.in/yaml/v3"}},
	"executor/internal/pattern": {pure: true},
	"executor/kubernetes": {
		imports:     []string{"internal/reason", "executor", "executor/internal/pattern", "executor/internal/verdict", "job", "store", "internal/node/output", "internal/remote/kube", "internal/sys/failurelog"},
		testImports: []string{"store/memory", "internal/check/kubetest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/sys/engine":       {testModules: []string{"go.uber.org/goleak"}},
	"executor/internal/verdict": {shared: true, imports: []string{"job"}},
	"executor/container": {
		imports:     []string{"internal/reason", "executor", "executor/internal/pattern", "executor/internal/verdict", "internal/sys/engine", "job"},
		testImports: []string{"test/servers"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"executor/shell": {
		imports:     []string{"internal/sys/cache", "internal/reason", "executor", "executor/internal/verdict", "internal/sys/fdpass", "job"},
		modules:     []string{"golang.org/x/sys/unix"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"store/memory": {
		imports:     []string{"job", "store", "store/internal/replica"},
		modules:     []string{"github.com/google/btree"},
		testImports: []string{"store/storetest"},
	},
	"store/joined": {
		// One store made of two.
		imports:     []string{"internal/phrase", "internal/reason", "job", "store", "internal/decide/engine"},
		testImports: []string{"store/memory", "store/sqlite", "store/storetest"},
	},
	"history/mongo": {
		imports:     []string{"job", "store"},
		modules:     []string{"go.mongodb.org/mongo-driver/v2"},
		testImports: []string{"store/joined", "store/memory", "store/storetest", "test/servers"},
	},
	"store/internal/ledger": {
		// A store except its storage.
		shared:      true,
		imports:     []string{"job", "store", "store/internal/columns", "internal/decide/engine", "internal/events"},
		modules:     []string{"github.com/google/btree"},
		testImports: []string{"store/memory"},
	},
	"store/storetest/shelf": {imports: []string{"store", "store/internal/replica"}},
	"store/storetest": {
		imports: []string{"internal/reason", "cron", "job", "store", "store/memory", "internal/decide/flow"},
	},
	"internal/node": {
		shared: true,
		imports: []string{
			"internal/sys/cache",
			"cron", "job", "store", "executor", "internal/decide/engine", "internal/decide/placement", "internal/decide/timer",
			"internal/sys/clock", "internal/node/garbage", "internal/decide/stripes", "internal/node/recovery", "internal/node/output", "internal/node/membership", "internal/node/planner", "internal/node/worker",
			"internal/sys/failurelog", "internal/node/watchdog", "internal/node/work",
		},
		testImports: []string{"store/memory", "internal/server/callback", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/cli/storecopy": {
		// It copies and checks whole stores.
		imports:     []string{"job", "store", "internal/decide/engine", "internal/decide/notification", "internal/reason"},
		testImports: []string{"store/joined", "store/memory", "store/sqlite", "store/postgres", "store/mysql", "store/etcd", "store/redis", "test/servers"},
		testModules: []string{"modernc.org/sqlite", "github.com/jackc/pgx/v5"},
	},
	"internal/server/metrics": {
		shared:      true,
		imports:     []string{"job", "store", "internal/reason", "internal/decide/account", "internal/decide/placement"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.yaml.in/yaml/v3"},
	},
	// What other packages take from the scheduler of a program.
	"internal/server/inside":      {shared: true, imports: []string{"job", "store", "internal/node", "internal/server/metrics", "internal/server/service"}},
	"internal/server/otelmetrics": {shared: true, imports: []string{"internal/server/metrics"}, modules: []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/sdk"}},
	"internal/server/telemetry": {
		imports: []string{"job", "store", "internal/server/metrics", "internal/server/otelmetrics", "internal/sys/failurelog"},
		modules: []string{
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/otel/log", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/contrib/bridges/otelslog",
		},
		testImports: []string{"internal/check/otlptest"},
		testModules: []string{"go.opentelemetry.io/proto/otlp"},
	},
	"internal/node/planner": {
		imports:     []string{"job", "store", "internal/decide/runqueue", "internal/decide/engine", "internal/decide/forecast", "internal/decide/stripes", "internal/decide/planqueue", "internal/sys/failurelog"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/watchdog": {
		imports:     []string{"job", "executor", "internal/sys/clock", "internal/sys/engine", "internal/sys/fdpass"},
		modules:     []string{"golang.org/x/sys/unix"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"client": {
		imports: []string{"job"},
	},
	"internal/server/assistant": {
		// It speaks to a server through package client alone.
		shared: true, imports: []string{"client", "internal/reason", "job"},
		modules: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	"internal/server/auth":     {shared: true, imports: []string{"internal/reason", "job", "store"}, testImports: []string{"store/memory"}},
	"internal/server/health":   {imports: []string{"internal/phrase", "job", "store", "executor/shell", "internal/server/config", "internal/sys/engine"}},
	"internal/server/nodeinfo": {shared: true, imports: []string{"job", "store"}, testImports: []string{"store/memory"}},
	"internal/server/config":   {shared: true, imports: []string{"cron", "job", "store"}},
	"internal/server/service": {
		shared: true,
		imports: []string{"internal/phrase", "internal/sys/cache", "internal/reason",
			"cron", "job", "store", "client", "internal/server/auth", "internal/decide/account", "internal/decide/engine", "internal/events", "internal/decide/flow", "internal/decide/forecast", "internal/node/garbage", "internal/decide/notification", "internal/sys/parallel", "internal/decide/placement",
			"internal/server/nodeinfo", "internal/decide/preview", "internal/node/output", "internal/node/secret", "internal/sys/failurelog", "internal/sys/spelling",
		},
		modules:     []string{"github.com/rogpeppe/go-internal/diff"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/remote/host": {
		// The server's side of package remote.
		shared:      true,
		imports:     []string{"internal/phrase", "internal/sys/cache", "job", "store", "client", "internal/decide/placement", "internal/server/auth", "internal/server/service", "internal/node/secret", "internal/node/work", "internal/remote/wire"},
		testImports: []string{"store/memory"},
	},
	"internal/server/httpapi": {
		// It has no store: the service shows and changes everything, and checks the caller.
		imports:     []string{"internal/phrase", "internal/reason", "job", "client", "internal/server/assistant", "internal/server/auth", "internal/events", "internal/sys/parallel", "internal/server/service", "internal/server/draw", "internal/sys/failurelog", "internal/remote/host", "internal/remote/wire"},
		modules:     []string{"github.com/danielgtaylor/huma/v2", "github.com/modelcontextprotocol/go-sdk", "golang.org/x/sync/semaphore"},
		testImports: []string{"store", "store/memory", "internal/decide/engine", "internal/decide/forecast", "internal/decide/notification", "internal/node/output", "internal/server/nodeinfo", "internal/node/secret"},
		testModules: []string{"github.com/santhosh-tekuri/jsonschema/v6", "go.uber.org/goleak"},
	},
	"internal/server/web": {
		// A page calls the service, and reads no store.
		imports:     []string{"internal/phrase", "internal/reason", "cron", "job", "client", "internal/server/auth", "internal/cli/crontab", "internal/server/draw", "internal/decide/flow", "internal/decide/forecast", "internal/server/i18n", "internal/server/service", "internal/server/signin"},
		modules:     []string{"go.yaml.in/yaml/v3"}, // forms change documents and keep their comments
		testImports: []string{"internal/decide/engine", "internal/node/secret", "internal/server/signin/provider", "store", "store/memory", "internal/decide/notification", "internal/decide/placement"},
	},
	"store/internal/columns": {
		// It passes hints to subscribers, which is its one effect.
		shared:  true,
		imports: []string{"job", "store", "internal/decide/engine"},
	},
	"store/internal/refill": {shared: true, imports: []string{"store"}, testModules: []string{"go.uber.org/goleak"}},
	"store/internal/sqldb": {
		// A store except its database.
		shared:  true,
		imports: []string{"internal/sys/cache", "internal/reason", "job", "store", "store/internal/columns", "store/internal/ledger", "store/internal/refill", "internal/sys/clock", "internal/decide/engine", "internal/events"},
	},
	"store/internal/replica": {
		// A backend of the ledger on any key-value store with a feed of changes.
		shared:      true,
		imports:     []string{"internal/reason", "job", "store", "store/internal/columns", "store/internal/ledger", "store/internal/refill", "internal/decide/engine", "internal/decide/nodeclock", "internal/events", "internal/sys/clock"},
		modules:     []string{"github.com/google/btree"},
		testImports: []string{"store/joined", "store/memory", "store/storetest", "store/storetest/shelf"},
	},
	"store/internal/address": {shared: true, imports: []string{}},
	"store/redis": {
		imports:     []string{"job", "store", "store/internal/address", "store/internal/ledger", "store/internal/replica"},
		modules:     []string{"github.com/gomodule/redigo"},
		testImports: []string{"store/joined", "store/memory", "store/storetest", "test/servers"},
	},
	"store/etcd": {
		imports:     []string{"job", "store", "store/internal/address", "store/internal/ledger", "store/internal/replica"},
		modules:     []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3", "go.uber.org/zap", "google.golang.org/grpc"},
		testImports: []string{"store/storetest", "test/servers"},
	},
	"store/mysql": {
		imports:     []string{"store", "store/internal/sqldb"},
		modules:     []string{"github.com/go-sql-driver/mysql"},
		testImports: []string{"job", "store/storetest", "test/servers"},
	},
	"store/postgres": {
		imports:     []string{"store", "store/internal/sqldb"},
		modules:     []string{"github.com/jackc/pgx/v5"},
		testImports: []string{"job", "store/storetest", "test/servers"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"store/sqlite": {
		imports:     []string{"job", "store", "store/internal/columns", "store/internal/sqldb"},
		modules:     []string{"modernc.org/sqlite", "modernc.org/libc"},
		testImports: []string{"store/storetest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	".": {
		// The package that Go programs import: it links only the store that they name.
		shared: true,
		imports: []string{"internal/reason",
			"cron", "job", "store", "executor", "client",
			"internal/decide/engine", "internal/decide/timer",
			"internal/server/auth", "internal/sys/clock", "internal/node", "internal/node/output", "internal/node/unreported", "internal/remote", "internal/server/inside", "internal/server/metrics", "internal/server/service",
		},
		testImports: []string{"belfrytest", "store/memory", "store/postgres", "store/sqlite", "test/servers", "internal/remote/host", "internal/server/auth", "internal/server/httpapi", "internal/server/service"},
		testModules: []string{"go.uber.org/goleak", "modernc.org/sqlite"},
	},
	"belfrytest": {imports: []string{".", "client", "job", "store", "store/memory"}},
	"internal/server": {
		shared: true,
		imports: []string{"internal/phrase", "internal/reason",
			"history/mongo", "client", "cron", "job", "store", "internal/decide/placement", "store/etcd", "store/joined", "store/mysql", "store/postgres", "store/redis", "store/sqlite", "executor", "executor/container", "executor/kubernetes", "executor/shell", "executor/http", "executor/xxl", "internal/sys/engine", "internal/remote/kube",
			"internal/server/auth", "internal/server/callback", "internal/server/health", "internal/sys/clock", "internal/server/config", "internal/server/runlog", "internal/server/scan", "internal/events", "internal/server/inside", "internal/server/httpapi", "internal/sys/fdpass", "internal/node/recovery", "internal/server/metrics", "internal/node", "internal/decide/engine", "internal/decide/notification", "internal/server/notify", "internal/server/nodeinfo", "internal/remote", "internal/remote/host", "internal/node/secret", "internal/server/service", "internal/server/signin", "internal/server/telemetry", "internal/sys/failurelog", "internal/node/unreported", "internal/node/watchdog", "internal/server/web", "internal/remote/wire", "internal/node/work", "internal/node/worker",
		},
		testImports: []string{"store/memory", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/cli/doctor": {
		shared: true,
		imports: []string{"history/mongo", "cron", "job", "store", "store/etcd", "store/mysql", "store/postgres", "store/redis", "store/sqlite", "client",
			"internal/node/watchdog", "internal/server", "internal/server/config", "internal/server/health"},
	},
	"internal/cli": {
		imports: []string{"internal/phrase",
			"internal/cli/doctor", "history/mongo", "cron", "job", "store", "store/etcd", "store/postgres", "store/sqlite", "executor/shell", "client", "internal/server/assistant",
			"internal/server/auth", "internal/server/health", "internal/server/config", "internal/cli/checkout", "internal/cli/crontab", "internal/cli/dkron", "internal/cli/kubernetes", "internal/remote/kube", "internal/decide/flow", "internal/server/i18n", "internal/node", "internal/server/notify", "internal/sys/parallel", "internal/decide/preview", "internal/reason", "internal/node/secret", "internal/server", "internal/sys/spelling", "internal/cli/storecopy", "internal/cli/systemd", "internal/node/watchdog", "internal/node/worker", "internal/cli/wrap", "internal/cli/xxlmysql", "internal/cli/xxltables",
		},
		testImports: []string{"internal/check/helptest", "internal/check/kubetest", "internal/check/logtest"},
		modules:     []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term", "go.yaml.in/yaml/v3"},
		testModules: []string{"github.com/rogpeppe/go-internal/testscript", "go.uber.org/goleak"},
	},
	"cmd/belfry": {
		imports: []string{"internal/cli", "internal/server", "internal/node/watchdog"},
	},
	"robfig": {
		// The interface of robfig/cron, without its module.
		imports: []string{".", "cron", "job", "store"}, testImports: []string{"belfrytest"},
	},
	"otelbelfry": {
		imports: []string{".", "internal/server/metrics", "internal/server/otelmetrics"}, modules: []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/sdk"}, testImports: []string{"belfrytest", "store/memory"},
	},
	"dashboard": {
		imports:     []string{".", "store", "internal/events", "internal/server/auth", "internal/server/httpapi", "internal/server/inside", "internal/server/service", "internal/server/web"},
		testImports: []string{"client", "job", "store/memory"},
	},
	"metrics":            {imports: []string{".", "internal/server/metrics"}, testImports: []string{"store/memory"}},
	"examples/embedded":  {imports: []string{".", "store", "store/postgres", "store/sqlite"}},
	"examples/flow":      {imports: []string{".", "store/memory"}},
	"examples/handlers":  {imports: []string{".", "store/postgres"}},
	"examples/sharding":  {imports: []string{".", "store/memory"}},
	"examples/connected": {imports: []string{"."}},
	// It tests the programs from outside.
	"test/programs":                   {testImports: []string{"test/servers"}, testModules: []string{"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "modernc.org/sqlite"}},
	"test/programs/orders":            {imports: []string{".", "job", "store", "store/mysql", "store/postgres", "store/sqlite"}, modules: []string{"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "modernc.org/sqlite"}},
	"test/programs/ticker":            {imports: []string{".", "job", "store", "store/etcd", "store/mysql", "store/postgres", "store/redis", "store/sqlite"}},
	"internal/check/archtest":         {},
	"internal/check/compat":           {pure: true},
	"internal/check/helptest":         {},
	"internal/server/signin/provider": {},
	"internal/check/kubetest":         {},
	"internal/check/logtest":          {},
	"internal/check/otlptest":         {modules: []string{"go.opentelemetry.io/proto/otlp", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	"internal/check/sim": {
		imports:     []string{"internal/check/truth", "internal/reason", "cron", "job", "store", "store/memory", "internal/decide/runqueue", "internal/server/callback", "internal/decide/engine", "internal/decide/stripes", "internal/node/recovery", "internal/decide/placement", "internal/decide/planqueue"},
		testImports: []string{"executor", "internal/node", "internal/check/logtest", "store/storetest/shelf"},
	},
	// The judge of reasons, of the simulation and of the cluster tests.
	"internal/check/truth": {pure: true, imports: []string{"internal/decide/engine", "internal/reason", "job", "store"}},
	// The model of the protocol, for Spin. Its tests have the build tag servers.
	"internal/check/model": {testImports: []string{"internal/check/sim"}},
	// Its tests have the build tag servers.
	// It asks PostgreSQL what its connections wait for.
	"test/cluster": {testImports: []string{"internal/check/logtest", "internal/check/truth", "internal/decide/account", "internal/reason", "store", "client", "job", "test/e2e/evidence", "test/e2e/ownclock", "test/servers"}, testModules: []string{"github.com/jackc/pgx/v5"}},
	// The end-to-end tests use a server from outside: its program, its API and the output of its
	// jobs.
	"test/e2e": {
		imports:     []string{"job", "client", "test/e2e/evidence"},
		testImports: []string{"internal/check/helptest", "internal/check/kubetest", "internal/check/otlptest", "internal/sys/engine", "test/e2e/ownclock", "test/servers"},
		modules:     []string{"golang.org/x/sys/unix"}, // makes a file immutable
		testModules: []string{"modernc.org/sqlite"},    // makes a store of an earlier version
	},
	"test/e2e/evidence": {
		pure: true,
	},
	"test/e2e/ownclock": {},
	// Faults of the code that tests must notice.
	"test/mutations": {},
	// The end of make test.
	"test/report": {},
	// It plays a server to workers that are processes.
	"test/conformance": {imports: []string{"client", "internal/remote/wire", "job"}},
	// Known vulnerabilities in the program.
	"test/vulnerable": {},
	// A reader of the tutorial.
	"test/tutorial": {testImports: []string{"test/servers"}},
	// Its tests have the build tag servers.
	"test/web": {testImports: []string{".", "dashboard", "store/memory", "test/servers"}, testModules: []string{"github.com/chromedp/chromedp", "github.com/chromedp/cdproto"}},
	// It starts database servers for the tests that need one.
	"test/servers":     {modules: []string{"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql"}},
	"test/e2e/witness": {imports: []string{"test/e2e/evidence"}},
}

// pureImports are the packages of the standard library without effects or clocks. Some are allowed
// without the functions in impureNames.
var pureImports = []string{
	"bufio", "bytes", "cmp", "container/heap", "crypto/sha256", "encoding", "encoding/base64", "encoding/binary",
	"encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "io", "iter",
	"maps", "math", "math/big", "math/bits", "math/rand/v2", "net/url", "path", "path/filepath",
	"reflect", "regexp", "slices", "sort", "strconv", "strings",
	"text/template", "text/template/parse", "time", "unicode", "unicode/utf8",
}

// impureNames are names that pure packages must not use from imports that they may have.
var impureNames = map[string][]string{
	"fmt":           {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"path/filepath": {"Abs", "EvalSymlinks", "Glob", "Walk", "WalkDir"},
	"time": {
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker",
		"NewTimer", "Local", "LoadLocation",
	},
	// The rest makes generators from a seed, which can be logged.
	"math/rand/v2": {
		"ExpFloat64", "Float32", "Float64", "Int", "Int32", "Int32N", "Int64",
		"Int64N", "IntN", "N", "NormFloat64", "Perm", "Shuffle", "Uint", "Uint32",
		"Uint32N", "Uint64", "Uint64N", "UintN",
	},
}

// emptyNames do not describe the content of a package, so that anything ends up in it.
var emptyNames = []string{
	"base", "common", "helper", "helpers", "lib", "misc", "shared", "tools",
	"util", "utils",
}
