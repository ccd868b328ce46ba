// Package xxltables reads the tables of an xxl-job-admin, from a dump or as rows, and converts them
// to jobs. It uses no database: package xxlmysql does.
package xxltables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The tables that are read.
const (
	GroupTable = "xxl_job_group"
	JobTable   = "xxl_job_info"
	GlueTable  = "xxl_job_logglue"
	UserTable  = "xxl_job_user"
	LogTable   = "xxl_job_log"
)

// Names returns the tables that are read, the log last: it is the longest.
func Names() []string { return []string{GroupTable, JobTable, GlueTable, UserTable, LogTable} }

// Table is a table's content. The releases of XXL-JOB differ in their columns, which are found by
// name.
type Table struct {
	Columns []string
	Rows    [][]Value
	// Highest is the highest id in the log, even if its row is missing.
	Highest string
}

// Value is a value of a row, as text.
type Value struct {
	Text string
	Null bool
}

// Admin is the data of an xxl-job-admin.
type Admin struct {
	Groups []Group
	Jobs   []Job
	Users  []User
	// LastLog is the highest number of a run, 0 for none.
	LastLog int64
	// Runs are finished runs, if requested.
	Runs []Run
}

// Group is a group of executors.
type Group struct {
	ID        int64
	AppName   string
	Title     string
	IsFixed   bool // its addresses are typed in
	Addresses []string
	HasToken  bool // it has its own access token
}

// Job is a job of an xxl-job-admin.
type Job struct {
	ID, Group                           int64
	Description, Author, AlarmEmail     string
	ScheduleType, ScheduleConf, Misfire string
	Route, Handler, Param, Block        string
	Timeout, Retries                    int64
	GlueType, GlueSource                string
	GlueUpdated                         time.Time
	Children                            []string
	// IsOn is set if the old admin starts it, or did until its take-over.
	IsOn     bool
	Next     time.Time // zero if it is off
	Versions []GlueVersion
}

// GlueVersion is code that a job had, or has.
type GlueVersion struct {
	Type, Source, Remark string
	Updated              time.Time
}

// User is a user of the web pages.
type User struct {
	Name    string
	IsAdmin bool
	Groups  []int64 // groups with rights, for users who are no admins
}

// Run is a run of the old admin that has ended.
type Run struct {
	ID, Job                       int64
	Executor, Param               string
	Started, Ended                time.Time
	TriggerCode, HandleCode       int64
	TriggerMessage, HandleMessage string
}

// reader reads the rows of a table.
type reader struct {
	table   string
	columns map[string]int
	row     []Value
	zone    *time.Location
	err     error
}

func (r *reader) has(column string) bool {
	_, ok := r.columns[column]
	return ok
}

// value returns the value of the first of some columns that the table has.
func (r *reader) value(columns ...string) Value {
	for _, column := range columns {
		if at, ok := r.columns[column]; ok && at < len(r.row) {
			return r.row[at]
		}
	}
	return Value{Null: true}
}

func (r *reader) text(columns ...string) string {
	v := r.value(columns...)
	if v.Null {
		return ""
	}
	return v.Text
}

func (r *reader) number(column string) int64 {
	v := r.value(column)
	if v.Null || v.Text == "" {
		return 0
	}
	n, err := strconv.ParseInt(v.Text, 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("table %s: column %s: %q is not a number", r.table, column, v.Text)
	}
	return n
}

// moment reads a date and time, which the old admin wrote in its zone.
func (r *reader) moment(column string) time.Time {
	text := r.text(column)
	if text == "" || strings.HasPrefix(text, "0000-") {
		return time.Time{}
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05", text, r.zone) // a fraction may follow
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("table %s: column %s: %q is not a date and time", r.table, column, text)
	}
	return at
}

// each calls a function with each row of a table.
func each(tables map[string]*Table, name string, zone *time.Location, needed []string, do func(*reader)) error {
	t := tables[name]
	if t == nil {
		return fmt.Errorf("table %s is missing", name)
	}
	r := &reader{table: name, columns: map[string]int{}, zone: zone}
	for i, column := range t.Columns {
		r.columns[strings.ToLower(column)] = i
	}
	for _, column := range needed {
		if !r.has(column) {
			return fmt.Errorf("table %s: column %s is missing: this is no table of XXL-JOB 2.2 to 3.5", name, column)
		}
	}
	for _, r.row = range t.Rows {
		if do(r); r.err != nil {
			return r.err
		}
	}
	return nil
}

// Read reads an admin's data from its tables, by name. zone is the zone of its process. It reads
// log entries that began after a moment, none for the zero time.
func Read(tables map[string]*Table, zone *time.Location, since time.Time) (*Admin, error) {
	a := &Admin{}
	err := each(tables, GroupTable, zone, []string{"id", "app_name", "address_type"}, func(r *reader) {
		g := Group{
			ID: r.number("id"), AppName: r.text("app_name"), Title: r.text("title", "name"),
			IsFixed: r.number("address_type") == 1, HasToken: r.text("access_token") != "",
		}
		if g.IsFixed {
			g.Addresses = split(r.text("address_list"))
		}
		a.Groups = append(a.Groups, g)
	})
	if err != nil {
		return nil, err
	}
	if err := a.readJobs(tables, zone); err != nil {
		return nil, err
	}
	if err := a.readVersions(tables, zone); err != nil {
		return nil, err
	}
	if tables[UserTable] != nil { // a dump may omit it
		err := each(tables, UserTable, zone, []string{"username", "role"}, func(r *reader) {
			u := User{Name: r.text("username"), IsAdmin: r.number("role") == 1}
			for _, id := range split(r.text("permission")) {
				if n, err := strconv.ParseInt(id, 10, 64); err == nil {
					u.Groups = append(u.Groups, n)
				}
			}
			a.Users = append(a.Users, u)
		})
		if err != nil {
			return nil, err
		}
	}
	if log := tables[LogTable]; log != nil {
		err := each(tables, LogTable, zone, []string{"id"}, func(r *reader) { a.readRun(r, since) })
		if err != nil {
			return nil, err
		}
		if log.Highest != "" {
			if a.LastLog, err = strconv.ParseInt(log.Highest, 10, 64); err != nil {
				return nil, fmt.Errorf("table %s: column id: %q is not a number", LogTable, log.Highest)
			}
		}
	}
	a.sort()
	return a, nil
}

func (a *Admin) readJobs(tables map[string]*Table, zone *time.Location) error {
	return each(tables, JobTable, zone, []string{"id", "job_group", "executor_handler", "glue_type", "trigger_status"}, func(r *reader) {
		j := Job{
			ID: r.number("id"), Group: r.number("job_group"),
			Description: r.text("job_desc", "name"), Author: r.text("author"), AlarmEmail: r.text("alarm_email"),
			ScheduleType: strings.ToUpper(r.text("schedule_type")), ScheduleConf: strings.TrimSpace(r.text("schedule_conf")), Misfire: r.text("misfire_strategy"),
			Route: r.text("executor_route_strategy"), Handler: strings.TrimSpace(r.text("executor_handler")), Param: r.text("executor_param"),
			Block: r.text("executor_block_strategy"), Timeout: r.number("executor_timeout"), Retries: r.number("executor_fail_retry_count"),
			GlueType: r.text("glue_type"), GlueSource: r.text("glue_source"), GlueUpdated: r.moment("glue_updatetime"),
			Children: split(r.text("child_jobid")), IsOn: r.number("trigger_status") == 1,
		}
		if r.has("job_cron") { // 2.2
			j.ScheduleType, j.ScheduleConf = "CRON", strings.TrimSpace(r.text("job_cron"))
		}
		if next := r.number("trigger_next_time"); next > 0 {
			// A stopped job with a next time was taken over: the old admin removes the time when it
			// stops a job.
			j.Next, j.IsOn = time.UnixMilli(next).In(zone), true
		}
		a.Jobs = append(a.Jobs, j)
	})
}

func (a *Admin) readVersions(tables map[string]*Table, zone *time.Location) error {
	if tables[GlueTable] == nil {
		return nil
	}
	type version struct {
		id, job int64
		GlueVersion
	}
	var all []version
	err := each(tables, GlueTable, zone, []string{"id", "job_id"}, func(r *reader) {
		all = append(all, version{r.number("id"), r.number("job_id"), GlueVersion{
			Type: r.text("glue_type"), Source: r.text("glue_source"), Remark: r.text("glue_remark"), Updated: r.moment("update_time"),
		}})
	})
	slices.SortFunc(all, func(x, y version) int { return int(x.id - y.id) })
	byJob := map[int64][]GlueVersion{}
	for _, v := range all {
		byJob[v.job] = append(byJob[v.job], v.GlueVersion)
	}
	for i := range a.Jobs {
		a.Jobs[i].Versions = byJob[a.Jobs[i].ID]
	}
	return err
}

// readRun reads a row of the log.
func (a *Admin) readRun(r *reader, since time.Time) {
	if since.IsZero() || r.text("trigger_time") == "" {
		return
	}
	one := Run{
		ID: r.number("id"), Job: r.number("job_id"), Executor: strings.TrimRight(r.text("executor_address"), "/"), Param: r.text("executor_param"),
		Started: r.moment("trigger_time"), Ended: r.moment("handle_time"), TriggerCode: r.number("trigger_code"), HandleCode: r.number("handle_code"),
		TriggerMessage: r.text("trigger_msg"), HandleMessage: r.text("handle_msg"),
	}
	isOver := one.HandleCode != 0 || one.TriggerCode != 0 && one.TriggerCode != codeOK
	if !isOver || one.Started.Before(since) {
		return
	}
	if one.Ended.Before(one.Started) {
		one.Ended = one.Started // it did not begin
	}
	a.Runs = append(a.Runs, one)
}

// codeOK is the code of sent requests, and of successes.
const codeOK = 200

// sort sorts all lists by number.
func (a *Admin) sort() {
	slices.SortFunc(a.Groups, func(x, y Group) int { return int(x.ID - y.ID) })
	slices.SortFunc(a.Jobs, func(x, y Job) int { return int(x.ID - y.ID) })
	slices.SortFunc(a.Runs, func(x, y Run) int { return cmp.Compare(x.ID, y.ID) })
	slices.SortFunc(a.Users, func(x, y User) int { return strings.Compare(x.Name, y.Name) })
}

// split returns the items between commas that are not blank.
func split(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
