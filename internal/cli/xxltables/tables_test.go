package xxltables_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/xxltables"
	"github.com/belfry-cron/belfry/job"
)

const logSince = ""

var now = time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)

func zone(t testing.TB) *time.Location {
	t.Helper()
	z, err := cron.LoadZone("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	return z.Location()
}

func planOf(t *testing.T, dump string, o xxltables.Options) *xxltables.Plan {
	t.Helper()
	tables, err := xxltables.ReadDump(strings.NewReader(dump), logSince)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := xxltables.Read(tables, zone(t), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	o.Zone, o.Now = "Asia/Shanghai", now
	plan, err := xxltables.Convert(admin, o)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func byID(t *testing.T, plan *xxltables.Plan, id int64) *xxltables.JobPlan {
	t.Helper()
	at := slices.IndexFunc(plan.Jobs, func(p xxltables.JobPlan) bool { return p.Old.ID == id })
	if at < 0 {
		t.Fatalf("job %d is missing", id)
	}
	return &plan.Jobs[at]
}

func notes(list []xxltables.Note) string {
	var all []string
	for _, n := range list {
		all = append(all, n.Field+": "+n.Text.String())
	}
	return strings.Join(all, "\n")
}

func TestAllSchemasMakeTheSameJobs(t *testing.T) {
	for _, s := range schemas {
		t.Run(s.name, func(t *testing.T) {
			var b strings.Builder
			plan := planOf(t, s.tables()+s.rows(), xxltables.Options{})
			for _, d := range plan.Jobs {
				if d.Job != nil {
					if err := job.Encode(&b, []job.Document{{Job: d.Job}}, job.YAML); err != nil {
						t.Fatal(err)
					}
				}
			}
			sync := byID(t, plan, 1)
			want := job.Job{
				Namespace: "order-service", Name: "ordersync-1", Description: `sync it's "all"`, Paused: true,
				Labels: map[string]string{"xxl-status": "started", "author": "李四", "alarm-email": "ops@example.org,li@example.org"},
				Params: map[string]job.Param{"param": {Default: "full\nnow; {{x}}"}},
			}
			j := sync.Job
			if j == nil {
				t.Fatal(sync.Problem)
			}
			if j.FullName() != want.FullName() || j.Description != want.Description || !j.Paused || !reflect.DeepEqual(j.Params, want.Params) ||
				j.Labels["author"] != want.Labels["author"] || j.Labels["xxl-status"] != "started" || j.Labels["alarm-email"] != want.Labels["alarm-email"] {
				t.Errorf("the job is %+v", j)
			}
			if x := j.Run.XXL; x.ID != 1 || x.Group != "order-service" || x.Handler != "orderSync" || x.Param != "{{ .Param.param }}" || x.Block != job.BlockSerial {
				t.Errorf("its run is %+v", x)
			}
			if p := j.Policy; p.Overlap != job.OverlapAllow || p.Missed != job.MissedNone || time.Duration(*p.Timeout) != 5*time.Minute || *p.Retry.Attempts != 2 || *p.Retry.Backoff != 0 {
				t.Errorf("its policy is %+v", p)
			}
			if s := j.Schedule; s.Cron[0] != "0 0/5 * * * ?" || s.Dialect != job.DialectQuartz || s.Timezone != "Asia/Shanghai" || s.ClockChange != job.ClockSkipLast {
				t.Errorf("its schedule is %+v", s)
			}
			if !sync.Next.Equal(time.UnixMilli(1795507800000)) {
				t.Errorf("it is due at %s", sync.Next)
			}
			if text := notes(sync.Notes); !strings.Contains(text, "child_jobid: 1 is the job itself") || !strings.Contains(text, "child_jobid: 99 is no job") || strings.Contains(text, "trigger_next_time") {
				t.Errorf("its notes are\n%s", text)
			}
			if b.Len() == 0 {
				t.Error("there is no document")
			}

			child := byID(t, plan, 2)
			if s := child.Job.Schedule; len(s.Cron) != 0 || len(s.On) != 1 || s.On[0].Job != "ordersync-1" || child.Job.Labels["xxl-status"] != "child" || !child.Starts() {
				t.Errorf("the stopped child is %+v, %v", s, child.Job.Labels)
			}
			beside := byID(t, plan, 3)
			if s := beside.Job.Schedule; len(s.Cron) != 1 || len(s.On) != 1 || beside.Job.Policy.Overlap != job.OverlapReplace {
				t.Errorf("the child with a cron is %+v", s)
			}
			if text := notes(beside.Notes); !strings.Contains(text, "child_jobid: 1 leads back") {
				t.Errorf("the notes of the circle are\n%s", text)
			}
			if forever := beside.Job.Policy.LateBy; s.hasCron != (forever == nil) {
				t.Errorf("a misfire that fires once is late by %v", forever)
			}
			if broken := byID(t, plan, 4); broken.Job != nil || !strings.Contains(broken.Problem.String(), "W stands behind a single day") {
				t.Errorf("the broken job: %q", broken.Problem)
			}
			code := byID(t, plan, 5)
			if g := code.Job.Run.XXL.Glue; code.Job.Name != "job-5" || g.Type != job.GlueShell || g.Source != "df -h" || !g.Updated.Equal(time.Date(2026, 5, 4, 4, 30, 15, 0, time.UTC)) {
				t.Errorf("the code is %+v", g)
			}
			if len(code.Versions) != 2 || code.Versions[0].Run.XXL.Glue.Source != "df" || code.Versions[1].Run.XXL.Glue.Source != "df -k" ||
				code.Versions[1].FullName() != code.Job.FullName() {
				t.Errorf("its versions are %+v", code.Versions)
			}
			if code.Job.Policy.Overlap != job.OverlapQueue || code.Job.Namespace != "fixed_group" {
				t.Errorf("a group of one address has %+v", code.Job.Policy)
			}
			if every := byID(t, plan, 6); every.Job.Namespace != "order-service-3" || every.Job.Place.Strategy != job.StrategyBroadcast {
				t.Errorf("the broadcast is %+v", every.Job)
			}
			if lone := byID(t, plan, 7); !strings.Contains(lone.Problem.String(), "there is no group 9") {
				t.Errorf("the job without a group: %q", lone.Problem)
			}
			if !s.hasCron {
				rate := byID(t, plan, 8)
				if s := rate.Job.Schedule; s.Every != job.Duration(30*time.Second) || !s.Start.Equal(time.UnixMilli(1795507815500)) || !rate.Next.Equal(s.Start) || rate.Job.Run.XXL.Block != job.BlockDiscard {
					t.Errorf("the fixed rate is %+v, next %s", s, rate.Next)
				}
				if s := byID(t, plan, 9).Job.Schedule; len(s.Cron) != 0 || s.Every != 0 || len(s.On) != 0 {
					t.Errorf("the job without a schedule has %+v", s)
				}
			}
			if plan.FirstNumber != 1_123_456 {
				t.Errorf("the first number is %d", plan.FirstNumber)
			}
			if text := notes(plan.People); text != "admin: belfry token create admin --role admin\n"+
				"li: belfry token create li-order-service --role admin -n order-service\n"+
				"li: belfry token create li-fixed_group --role admin -n fixed_group\n"+
				"wang: has rights for no group: needs no token" {
				t.Errorf("people:\n%s", text)
			}
		})
	}
}

// A stopped job that only a refused one starts would be active and never due.
func TestChildrenOfARefusedJobStayWithoutIt(t *testing.T) {
	const columns = "INSERT INTO xxl_job_info (id, job_group, job_desc, schedule_type, schedule_conf, executor_route_strategy, executor_handler, executor_block_strategy, glue_type, child_jobid, trigger_status) VALUES "
	plan := planOf(t, schemas[1].tables()+schemas[1].rows()+columns+
		"(20,1,'broken','CRON','every day','FIRST','a','SERIAL_EXECUTION','BEAN','21',1),"+
		"(21,1,'child','NONE','','FIRST','b','SERIAL_EXECUTION','BEAN','22',0),"+
		"(22,1,'its child','NONE','','FIRST','c','SERIAL_EXECUTION','BEAN','',0);", xxltables.Options{})
	broken, child, next := byID(t, plan, 20), byID(t, plan, 21), byID(t, plan, 22)
	if broken.Job != nil || !strings.Contains(notes(broken.Notes), "child_jobid: 21 or this job is not imported") {
		t.Errorf("the broken job has %+v, with the notes\n%s", broken.Job, notes(broken.Notes))
	}
	if len(child.Job.Schedule.On) != 0 || child.Job.Labels[xxltables.StatusLabel] != xxltables.StatusStopped {
		t.Errorf("its child is %+v, %v", child.Job.Schedule, child.Job.Labels)
	}
	if text := notes(child.Notes); text != "child_jobid: job 20, which starts this one, is not imported: it does not start it" {
		t.Errorf("the notes of the child are\n%s", text)
	}
	if on := next.Job.Schedule.On; len(on) != 1 || on[0].Job != "b-21" {
		t.Errorf("the child of the child follows %+v", on)
	}
}

func TestNamespacesOfGroupsDiffer(t *testing.T) {
	plan := planOf(t, schemas[1].tables()+"INSERT INTO xxl_job_group (id, app_name, title, address_type) VALUES (1,'A','',0),(2,'a','',0),(3,'a-2','',0),(4,'订单','',0),(5,'group-4','',0);", xxltables.Options{})
	var names []string
	for _, g := range plan.Groups {
		names = append(names, g.Namespace)
	}
	if got := strings.Join(names, " "); got != "a a-2 a-2-3 group-4 group-4-5" {
		t.Errorf("the namespaces are %s", got)
	}
}

func TestOneRunForAllExecutors(t *testing.T) {
	plan := planOf(t, schemas[1].tables()+schemas[1].rows(), xxltables.Options{OneRun: true})
	if p := byID(t, plan, 1).Job; p.Policy.Overlap != job.OverlapQueue || p.Policy.QueueLimit != 10_000 || p.Run.XXL.Block != "" {
		t.Errorf("it has %+v", p.Policy)
	}
}

func TestGroupsWithTypedAddressesMailAndRunsOfThePastAreTakenOver(t *testing.T) {
	for _, s := range schemas {
		t.Run(s.name, func(t *testing.T) {
			since := time.Date(2026, 11, 23, 0, 0, 0, 0, zone(t))
			tables, err := xxltables.ReadDump(strings.NewReader(s.tables()+s.rows()), since.Format("2006-01-02 15:04:05"))
			if err != nil {
				t.Fatal(err)
			}
			admin, err := xxltables.Read(tables, zone(t), since)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := xxltables.Convert(admin, xxltables.Options{Zone: "Asia/Shanghai", MailServer: "mail.example.org:587", MailFrom: "belfry@example.org", Now: now})
			if err != nil {
				t.Fatal(err)
			}
			var typed []string
			for _, g := range plan.Groups {
				if g.Executors != nil {
					typed = append(typed, g.Executors.FullName()+" "+g.Executors.Group+" "+g.Executors.Title+" "+strings.Join(g.Executors.Addresses, ","))
				}
			}
			if want := "fixed_group/fixed_group Fixed_Group 固定 http://10.0.0.5:9999"; strings.Join(typed, ";") != want {
				t.Errorf("typed in are %q, want %q", typed, want)
			}
			if len(plan.Channels) != 3 || plan.Channels[0].FullName() != "order-service/alarm-ops-example.org-li-example.org" ||
				strings.Join(plan.Channels[0].To.Mail.To, " ") != "ops@example.org li@example.org" || plan.Channels[0].Rules[0].Labels["alarm-email"] != byID(t, plan, 1).Job.Labels["alarm-email"] {
				t.Errorf("the channels are %+v", plan.Channels)
			}
			var runs []string
			for _, r := range plan.Runs {
				runs = append(runs, fmt.Sprintf("%d %s %s %q hand=%v %v %s", r.Old.ID, r.Job, r.Outcome, r.Reason, r.ByHand, r.Old.Ended.Sub(r.Old.Started), r.Old.Executor))
			}
			if got, want := strings.Join(runs, "\n"), `50 order-service/ordersync-1 succeeded "" hand=true 5s http://10.0.0.1:9999
51 order-service/ordersync-1 failed "it was not sent: 任务触发类型：Cron触发 no executor" hand=false 0s `+`
52 order-service/ordersync-1 timed_out "job timeout" hand=false 1m0s http://10.0.0.1:9999`; got != want {
				t.Errorf("runs of the past:\n%s\nwant\n%s", got, want)
			}
			if plan.FirstNumber != 1_123_456 {
				t.Errorf("the first number is %d", plan.FirstNumber)
			}
		})
	}
}

func TestDumpsOfOtherToolsAreRead(t *testing.T) {
	s := schemas[1]
	for name, dump := range map[string]string{
		"names of the database": strings.NewReplacer("INSERT INTO `", "INSERT INTO `xxl_job`.`", "CREATE TABLE `", "CREATE TABLE IF NOT EXISTS xxl_job.`").Replace(s.tables() + s.rows()),
		"comments and other tables": "/*!40101 SET NAMES utf8mb4 */;\n-- a comment; with ' in it\n# another '\nDROP TABLE IF EXISTS `a`;\nCREATE TABLE `a` (`id` int);\nINSERT INTO `a` VALUES (1,'x;(');\n" +
			s.tables() + "LOCK TABLES `xxl_job_info` WRITE;\n" + s.rows() + "UNLOCK TABLES;\n",
		"other words": strings.NewReplacer("INSERT INTO", "insert ignore into", "VALUES", "values\n").Replace(s.tables() + s.rows()),
	} {
		plan := planOf(t, dump, xxltables.Options{})
		if got, want := len(plan.Jobs), 9; got != want {
			t.Errorf("%s: %d jobs, want %d", name, got, want)
		}
	}
}

func TestBrokenDumpsAreRefused(t *testing.T) {
	s := schemas[1]
	whole := s.tables() + s.rows()
	for name, test := range map[string]struct{ dump, want string }{
		"cut in a text":      {whole[:strings.Index(whole, "INSERT INTO `xxl_job_info`")+700], "the dump ends inside"},
		"cut in a statement": {whole[:strings.Index(whole, "VALUES (1,'order-service'")+9], "the dump ends inside"},
		"no tables":          {"CREATE TABLE a (id int);", "the dump does not have the table xxl_job_group"},
		"too few values":     {s.tables() + "INSERT INTO xxl_job_group VALUES (1,'a');", "has 2 values for 5 columns"},
		"another column":     {s.tables() + "INSERT INTO xxl_job_group (id, shape) VALUES (1,'a');", "has no column shape"},
	} {
		if _, err := xxltables.ReadDump(strings.NewReader(test.dump), logSince); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	tables, err := xxltables.ReadDump(strings.NewReader("CREATE TABLE xxl_job_group (id int); CREATE TABLE xxl_job_info (id int); INSERT INTO xxl_job_group VALUES (1);"), logSince)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := xxltables.Read(tables, time.UTC, time.Time{}); err == nil || !strings.Contains(err.Error(), "table xxl_job_group: column app_name is missing") {
		t.Errorf("other columns: %v", err)
	}
}

func FuzzReadDump(f *testing.F) {
	f.Add(schemas[0].tables() + schemas[0].rows())
	f.Add("INSERT INTO xxl_job_info VALUES (1,_binary 'x',0x41,now(),-5,NULL);")
	f.Fuzz(func(t *testing.T, dump string) {
		tables, err := xxltables.ReadDump(strings.NewReader(dump), logSince)
		if err != nil {
			return
		}
		admin, err := xxltables.Read(tables, time.UTC, time.Time{})
		if err != nil {
			return
		}
		if _, err := xxltables.Convert(admin, xxltables.Options{Zone: "UTC", Now: now}); err != nil {
			t.Error(err)
		}
	})
}

// A note on many jobs is listed once, so that a note beside a job is about that job.
func TestANoteOnManyJobsIsSaidOnce(t *testing.T) {
	s := schemas[2]
	plan := planOf(t, s.tables()+s.rows(), xxltables.Options{})
	shared := map[string][]int64{}
	for _, n := range plan.Shared {
		shared[n.Field] = n.Jobs
	}
	if got := shared["alarm_email"]; !slices.Equal(got, []int64{1, 2, 3, 5, 6}) {
		t.Errorf("the note on alarm_email concerns %v, of %+v", got, plan.Shared)
	}
	for _, p := range plan.Jobs {
		if text := notes(p.Notes); strings.Contains(text, "alarm_email") {
			t.Errorf("job %d repeats it: %s", p.Old.ID, text)
		}
	}
	if text := notes(byID(t, plan, 1).Notes); !strings.Contains(text, "child_jobid: 99 is no job") {
		t.Errorf("the notes of job 1 alone are %q", text)
	}
	if text := notes(byID(t, plan, 6).Notes); text != "" {
		t.Errorf("job 6 has the notes %q", text)
	}
}
