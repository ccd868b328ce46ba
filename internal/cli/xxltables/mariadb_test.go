//go:build servers

package xxltables_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/belfry-cron/belfry/internal/cli/xxlmysql"
	"github.com/belfry-cron/belfry/internal/cli/xxltables"
	"github.com/belfry-cron/belfry/test/servers"
)

var server *servers.MariaDB

func TestMain(m *testing.M) {
	os.Exit(servers.Main(m, &server, func() (*servers.MariaDB, error) { return servers.NewMariaDB("--innodb-flush-log-at-trx-commit=0") }))
}

// oldAdmin makes the database of an xxl-job-admin, and returns its address.
func oldAdmin(t *testing.T, statements string) (address string, db *sql.DB) {
	t.Helper()
	address, err := server.Database()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.MultiStatements = "root", "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), true
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db = sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
	return address, db
}

// recent is since when runs are read, as the log writes it.
const recent = "2026-11-23 00:00:00"

func converted(t *testing.T, tables map[string]*xxltables.Table) *xxltables.Plan {
	t.Helper()
	admin, err := xxltables.Read(tables, zone(t), time.Date(2026, 11, 23, 0, 0, 0, 0, zone(t)))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := xxltables.Convert(admin, xxltables.Options{Zone: "Asia/Shanghai", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A database and its dump have the same content.
func TestADatabaseAndItsDumpMakeTheSameJobs(t *testing.T) {
	for _, s := range schemas {
		t.Run(s.name, func(t *testing.T) {
			address, _ := oldAdmin(t, s.tables()+s.rows())
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			db, err := xxlmysql.Open(t.Context(), address, "")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			tables, err := db.Tables(t.Context(), recent)
			if err != nil {
				t.Fatal(err)
			}
			live := converted(t, tables)
			if len(live.Jobs) < 7 || live.FirstNumber != 1_123_456 || len(live.Runs) != 3 {
				t.Fatalf("the database has %d jobs, and numbers from %d", len(live.Jobs), live.FirstNumber)
			}
			for name, flags := range map[string][]string{"plain": nil, "row by row": {"--skip-extended-insert", "--complete-insert", "--hex-blob"}} {
				args := append([]string{"--host=" + u.Hostname(), "--port=" + u.Port(), "--protocol=tcp", "--user=root", "--skip-ssl"}, flags...)
				dump, err := exec.CommandContext(t.Context(), "mariadb-dump", append(args, strings.TrimPrefix(u.Path, "/"))...).Output()
				if err != nil {
					t.Fatal(err)
				}
				read, err := xxltables.ReadDump(bytes.NewReader(dump), recent)
				if err != nil {
					t.Fatal(err)
				}
				if dumped := converted(t, read); !reflect.DeepEqual(live, dumped) {
					t.Errorf("%s: the dump makes\n%+v\nand the database\n%+v", name, dumped, live)
				}
			}
		})
	}
}

func TestJobsStopUnderTheLockOfTheOldAdmins(t *testing.T) {
	s := schemas[1]
	address, raw := oldAdmin(t, s.tables()+s.rows())
	db, err := xxlmysql.Open(t.Context(), address, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	before := statusOf(t, raw)
	all := []int64{1, 2, 3, 4, 5, 6, 8, 9}

	// A concurrently scheduling old admin comes first.
	admin, err := raw.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ExecContext(t.Context(), "select * from xxl_job_lock where lock_name = 'schedule_lock' for update"); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		list []xxlmysql.Stopped
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		list, err := db.Stop(context.Background(), "order-service", all)
		answers <- answer{list, err}
	}()
	select {
	case got := <-answers:
		t.Fatalf("it did not wait for the lock: %+v", got)
	case <-time.After(300 * time.Millisecond):
	}
	if _, err := admin.ExecContext(t.Context(), "update xxl_job_info set trigger_next_time = trigger_next_time + 300000 where id = 1"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Commit(); err != nil {
		t.Fatal(err)
	}
	got := <-answers
	if got.err != nil || len(got.list) != 3 || got.list[0].ID != 1 || got.list[0].Next.UnixMilli() != 1795507800000+300000 {
		t.Fatalf("stopped are %+v, %v", got.list, got.err)
	}
	again, err := db.Stop(t.Context(), "order-service", all)
	if err != nil || !reflect.DeepEqual(again, got.list) {
		t.Errorf("again stopped are %+v, %v", again, err)
	}
	if is := statusOf(t, raw); is["4"] != before["4"] || is["1"] != "0 1795508100000" || is["2"] != "0 0" {
		t.Errorf("the jobs are %v", is)
	}
	again[0].Next = time.UnixMilli(1795507800000)
	for range 2 {
		if err := db.Start(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if is := statusOf(t, raw); !reflect.DeepEqual(is, before) {
			t.Errorf("given back, the jobs are %v, and were %v", is, before)
		}
	}
	if _, err := raw.ExecContext(t.Context(), "delete from xxl_job_lock"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Stop(t.Context(), "order-service", all); err == nil || !strings.Contains(err.Error(), "no row schedule_lock") {
		t.Errorf("without the row of the lock: %v", err)
	}
}

func statusOf(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "select id, concat(trigger_status, ' ', trigger_next_time) from xxl_job_info")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var id, status string
		if err := rows.Scan(&id, &status); err != nil {
			t.Fatal(err)
		}
		all[id] = status
	}
	return all
}

// node is a server of Belfry, and the address at which executors register.
type node struct {
	t         *testing.T
	program   string
	env       []string
	executors string
}

const accessToken = "a-token-of-executors-for-tests"

func startNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "belfry")
	if err := servers.Build(program, "cmd/belfry"); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(accessToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, program: program, env: append(os.Environ(), "BELFRY_DATA="+filepath.Join(dir, "data")), executors: fmt.Sprint("127.0.0.1:", port)}
	ctx, cancel := context.WithCancel(context.Background())
	serve := exec.CommandContext(ctx, program, "serve", "--listen", "127.0.0.1:0", "--xxl-listen", n.executors, "--xxl-token", token)
	serve.Cancel = func() error { return serve.Process.Signal(os.Interrupt) }
	serve.Env = n.env
	var log bytes.Buffer
	serve.Stdout, serve.Stderr = &log, &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = serve.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := n.try("node", "list"); err == nil {
			return n
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (n *node) try(args ...string) (string, error) {
	cmd := exec.CommandContext(n.t.Context(), n.program, args...)
	cmd.Env = n.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("belfry %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (n *node) run(args ...string) string {
	n.t.Helper()
	out, err := n.try(args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// stub is an executor that finishes each run at once.
type stub struct {
	*httptest.Server
	node *node
	mu   sync.Mutex
	// runs has how often a job was sent, by its number.
	runs map[int64]int
}

func startStub(n *node) *stub {
	n.t.Helper()
	s := &stub{node: n, runs: map[int64]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/run" {
			var answer struct {
				JobID int64 `json:"jobId"`
				LogID int64 `json:"logId"`
			}
			_ = json.NewDecoder(r.Body).Decode(&answer)
			s.mu.Lock()
			s.runs[answer.JobID]++
			s.mu.Unlock()
			go func() {
				_ = s.post("/api/callback", fmt.Sprintf(`[{"logId":%d,"logDateTim":1,"handleCode":200,"handleMsg":null}]`, answer.LogID))
			}()
		}
		fmt.Fprint(w, `{"code":200,"msg":null}`)
	}))
	n.t.Cleanup(s.Close)
	if err := s.post("/api/registry", fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":"order-service","registryValue":"%s/"}`, s.URL)); err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (s *stub) post(path, body string) error {
	request, err := http.NewRequest(http.MethodPost, "http://"+s.node.executors+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("XXL-JOB-ACCESS-TOKEN", accessToken)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

func (s *stub) count(job int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[job]
}

// A group is taken over without a gap or a duplicate, and given back, whichever step is repeated.
func TestGroupTakeoverCanBeReverted(t *testing.T) {
	s := schemas[2]
	address, raw := oldAdmin(t, s.tables()+s.rows())
	n := startNode(t)
	// Job 1 is due each second, and the old admin has got as far as 2 s from now.
	due := time.Now().Truncate(time.Second).Add(2 * time.Second)
	if _, err := raw.ExecContext(t.Context(), "update xxl_job_info set schedule_conf = '* * * * * ?', trigger_next_time = ?, child_jobid = '2' where id = 1", due.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.ExecContext(t.Context(), "delete from xxl_job_info where id in (4, 7)"); err != nil {
		t.Fatal(err)
	}
	// Job 8 does not fall due in the meantime.
	if _, err := raw.ExecContext(t.Context(), "update xxl_job_info set schedule_conf = '3600', trigger_next_time = ? where id = 8", due.Add(time.Hour).UnixMilli()); err != nil {
		t.Fatal(err)
	}
	if out, err := n.try("xxl", "take-over", "--group", "order-service", "--from", address, "--yes"); err == nil || !strings.Contains(out, "belfry xxl import --apply brings them") {
		t.Errorf("without an import: %s, %v", out, err)
	}
	n.run("xxl", "import", "--from", address, "--zone", "Asia/Shanghai", "--apply")
	if out, err := n.try("xxl", "take-over", "--group", "order-service", "--from", address, "--yes"); err == nil || !strings.Contains(out, "no executor of the group order-service is registered") {
		t.Errorf("without an executor: %s, %v", out, err)
	}
	before := statusOf(t, raw)
	executor := startStub(n)
	if out, err := n.try("xxl", "take-over", "--group", "orders", "--from", address, "--yes"); err == nil || !strings.Contains(out, "it has order-service, Fixed_Group, ORDER-SERVICE") {
		t.Errorf("another group: %s, %v", out, err)
	}

	// Its progress line goes to a closed pipe: interrupted there, it has stopped the jobs in the
	// old admin and resumed none here.
	reader, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	cut := exec.CommandContext(t.Context(), n.program, "xxl", "take-over", "--group", "order-service", "--from", address, "--yes")
	cut.Env, cut.Stderr = n.env, said
	if err := cut.Run(); err == nil || !strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("it was not interrupted: %v", err)
	}
	_ = said.Close()
	if is := statusOf(t, raw); is["1"] != fmt.Sprintf("0 %d", due.UnixMilli()) || executor.count(1) != 0 {
		t.Errorf("interrupted, the jobs are %v, and %d runs were sent", is, executor.count(1))
	}
	// Given back at that point, it has had no effect.
	n.run("xxl", "give-back", "--group", "order-service", "--from", address, "--yes")
	if is := statusOf(t, raw); !reflect.DeepEqual(is, before) {
		t.Errorf("given back at once, the jobs are %v, and were %v", is, before)
	}

	out := n.run("xxl", "take-over", "--group", "order-service", "--from", address, "--yes")
	if !strings.Contains(out, "is taken over: 4 jobs resumed") {
		t.Errorf("it says %s", out)
	}
	if out := n.run("xxl", "take-over", "--group", "order-service", "--from", address, "--yes"); !strings.Contains(out, "0 jobs resumed") {
		t.Errorf("again it says %s", out)
	}
	if out := n.run("xxl", "import", "--from", address, "--zone", "Asia/Shanghai", "--apply"); !strings.Contains(out, " 0 created, 0 changed") {
		t.Errorf("a second import says %s\n%s", out, n.run("job", "diff", "order-service/ordersync-1", "3", "4"))
	}
	n.run("xxl", "give-back", "--group", "order-service", "--from", address, "--yes")
	is := statusOf(t, raw)
	var status, next int64
	if _, err := fmt.Sscan(is["1"], &status, &next); err != nil || status != 1 {
		t.Fatalf("given back, the jobs are %v", is)
	}
	// Each second from the first that the old admin has not sent to the first that it sends again.
	if sent, want := executor.count(1), int(time.UnixMilli(next).Sub(due)/time.Second); sent != want {
		t.Errorf("%d runs were sent, and %d fell due:\n%s", sent, want, n.run("run", "list", "-A", "-o", "json"))
	}
	if executor.count(2) == 0 {
		t.Error("the stopped child did not follow")
	}
	for id, was := range before {
		if id != "1" && is[id] != was {
			t.Errorf("job %s is %s, and was %s", id, is[id], was)
		}
	}
	again := statusOf(t, raw)
	n.run("xxl", "give-back", "--group", "order-service", "--from", address, "--yes")
	if is := statusOf(t, raw); !reflect.DeepEqual(is, again) {
		t.Errorf("given back again, the jobs are %v, and were %v", is, again)
	}
}

// takenOver is a group that Belfry has taken over from an old admin: job 1 is due each second, job
// 8 in an hour; jobs 10 and 11 cannot be imported, and only job 10 is started.
func takenOver(t *testing.T) (address string, raw *sql.DB, n *node, executor *stub, before map[string]string) {
	t.Helper()
	s := schemas[2]
	address, raw = oldAdmin(t, s.tables()+s.rows())
	n = startNode(t)
	due := time.Now().Truncate(time.Second).Add(2 * time.Second)
	for _, change := range []string{
		fmt.Sprintf("update xxl_job_info set schedule_conf = '* * * * * ?', trigger_next_time = %d where id = 1", due.UnixMilli()),
		"delete from xxl_job_info where id in (4, 7)",
		fmt.Sprintf("update xxl_job_info set schedule_conf = '3600', trigger_next_time = %d where id = 8", due.Add(time.Hour).UnixMilli()),
		"insert into xxl_job_info (id, job_group, job_desc, schedule_type, schedule_conf, executor_route_strategy, executor_handler, executor_block_strategy, glue_type, trigger_status, trigger_next_time) values " +
			"(10,1,'at 25','CRON','0 0 25 * * ?','FIRST','late','SERIAL_EXECUTION','BEAN',1,1795507815500),(11,1,'off','CRON','0 0 26 * * ?','FIRST','off','SERIAL_EXECUTION','BEAN',0,0)",
	} {
		if _, err := raw.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	before = statusOf(t, raw)
	n.run("xxl", "import", "--from", address, "--zone", "Asia/Shanghai", "--apply", "--skip-errors")
	executor = startStub(n)
	out := n.run("xxl", "take-over", "--group", "order-service", "--from", address, "--yes")
	if !strings.Contains(out, "warning: job 10 at 25: schedule_conf: hour: 25 is out of range") || strings.Contains(out, "job 11") || !strings.Contains(out, "4 jobs resumed") {
		t.Fatalf("the take-over says %s", out)
	}
	if is := statusOf(t, raw); is["10"] != before["10"] || is["1"] != "0 "+strings.Fields(before["1"])[1] {
		t.Fatalf("taken over, the jobs are %v, and were %v", is, before)
	}
	return address, raw, n, executor, before
}

// started checks that started jobs are started again, and the rest unchanged.
func started(t *testing.T, raw *sql.DB, before map[string]string) {
	t.Helper()
	is := statusOf(t, raw)
	for id, was := range before {
		if strings.Fields(is[id])[0] != strings.Fields(was)[0] || id != "1" && is[id] != was {
			t.Errorf("given back, job %s is %s, and was %s", id, is[id], was)
		}
	}
}

// isPaused checks that Belfry no longer runs a job.
func isPaused(t *testing.T, n *node, name string) {
	t.Helper()
	if out := n.run("job", "get", name); !strings.Contains(out, "\npaused: true\n") {
		t.Errorf("job %s is not paused: %s", name, out)
	}
}

// The undo matters most when the executors have left Belfry.
func TestGiveBackNeedsNoExecutor(t *testing.T) {
	address, raw, n, executor, before := takenOver(t)
	executor.Close()
	if err := executor.post("/api/registryRemove", fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":"order-service","registryValue":"%s/"}`, executor.URL)); err != nil {
		t.Fatal(err)
	}
	if out := n.run("xxl", "executors"); strings.Contains(out, "127.0.0.1") {
		t.Fatalf("an executor is registered still: %s", out)
	}
	out := n.run("xxl", "give-back", "--group", "order-service", "--from", address, "--yes")
	if !strings.Contains(out, "warning: no executor of the group order-service is registered with Belfry") {
		t.Errorf("it says %s", out)
	}
	started(t, raw, before)
	isPaused(t, n, "order-service/ordersync-1")
	isPaused(t, n, "order-service/mailsend-2")
}

// A half-finished take-over is undone even if jobs were deleted here, and changed there so that
// they cannot be imported again.
func TestGiveBackAfterSomethingBrokeInBetween(t *testing.T) {
	address, raw, n, executor, before := takenOver(t)
	executor.Close()
	n.run("job", "pause", "order-service/report-3") // as if the take-over had not reached it
	n.run("job", "delete", "order-service/beat-8", "--yes")
	if _, err := raw.ExecContext(t.Context(), "update xxl_job_info set schedule_conf = '0 0 25 * * ?', executor_handler = 'renamed' where id = 1"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n.run("xxl", "give-back", "--group", "order-service", "--from", address, "--yes")
		started(t, raw, before)
		isPaused(t, n, "order-service/ordersync-1")
		isPaused(t, n, "order-service/report-3")
	}
}

// A job that was not imported stops the take-over before any change, unless it is excluded.
func TestTakeOverLeavesOutJobsThatAreNotImported(t *testing.T) {
	address, raw, n, _, _ := takenOver(t)
	if _, err := raw.ExecContext(t.Context(), "insert into xxl_job_info (id, job_group, job_desc, schedule_type, schedule_conf, executor_route_strategy, executor_handler, executor_block_strategy, glue_type, trigger_status, trigger_next_time) values (12,1,'new','CRON','0 0 1 * * ?','FIRST','new','SERIAL_EXECUTION','BEAN',1,1795507815500)"); err != nil {
		t.Fatal(err)
	}
	out, err := n.try("xxl", "take-over", "--group", "order-service", "--from", address, "--yes")
	if err == nil || !strings.Contains(out, "not in Belfry: 12 new") || !strings.Contains(out, "--skip-errors leaves them with the old admin") {
		t.Errorf("it says %s, %v", out, err)
	}
	out = n.run("xxl", "take-over", "--group", "order-service", "--from", address, "--yes", "--skip-errors")
	if !strings.Contains(out, "warning: job 12 new is not in Belfry, and stays with the old admin") {
		t.Errorf("it says %s", out)
	}
	if is := statusOf(t, raw); is["12"] != "1 1795507815500" {
		t.Errorf("the jobs are %v", is)
	}
}

// The old admin would repeat the last run of a job without further occurrences.
func TestGiveBackLeavesAJobStoppedWhoseScheduleHasEnded(t *testing.T) {
	address, raw, n, executor, before := takenOver(t)
	for executor.count(1) == 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("job 1 has not run")
		case <-time.After(50 * time.Millisecond):
		}
	}
	n.run("job", "pause", "order-service/ordersync-1")
	var document map[string]any
	if err := json.Unmarshal([]byte(n.run("job", "get", "order-service/ordersync-1", "-o", "json")), &document); err != nil {
		t.Fatal(err)
	}
	schedule := document["schedule"].(map[string]any)
	start, err := time.Parse(time.RFC3339, fmt.Sprint(schedule["start"]))
	if err != nil {
		t.Fatal(err)
	}
	// It falls due at its start, and each 5 s: no occurrence follows the first one, however long this took.
	schedule["end"] = start.Add(time.Second).Format(time.RFC3339)
	for _, name := range []string{"status", "uid", "version"} {
		delete(document, name)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "job.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	n.run("apply", "-f", file)
	out := n.run("xxl", "give-back", "--group", "order-service", "--from", address, "--yes")
	if !strings.Contains(out, "job 1 stays stopped in the old admin: its schedule has ended") {
		t.Errorf("it says %s", out)
	}
	is := statusOf(t, raw)
	if !strings.HasPrefix(is["1"], "0 ") || is["8"] != before["8"] {
		t.Errorf("the jobs are %v, and were %v", is, before)
	}
}
