package xxltables_test

import (
	"fmt"
	"strings"
)

// schema is the table layout of an XXL-JOB release.
type schema struct {
	name           string
	groupTitle     string // column of the title
	jobTitle       string // column of the description
	hasCron        bool   // job_cron instead of schedule_type, schedule_conf and misfire_strategy
	hasGroupTokens bool
	hasUserToken   bool
	longParam      bool
}

var schemas = []schema{
	{name: "2.2", groupTitle: "title", jobTitle: "job_desc", hasCron: true},
	{name: "2.4", groupTitle: "title", jobTitle: "job_desc"},
	{name: "3.2", groupTitle: "title", jobTitle: "job_desc", hasUserToken: true},
	{name: "3.4", groupTitle: "title", jobTitle: "job_desc", hasUserToken: true, longParam: true},
	{name: "3.5", groupTitle: "name", jobTitle: "name", hasUserToken: true, longParam: true, hasGroupTokens: true},
}

// tables returns statements that create the tables.
func (s schema) tables() string {
	var b strings.Builder
	table := func(name string, columns ...string) {
		fmt.Fprintf(&b, "CREATE TABLE `%s` (\n", name)
		for _, c := range columns {
			if c != "" {
				column, kind, _ := strings.Cut(c, " ")
				fmt.Fprintf(&b, "  `%s` %s COMMENT 'about: (%s), and; more',\n", column, kind, column)
			}
		}
		first, _, _ := strings.Cut(columns[0], " ")
		fmt.Fprintf(&b, "  PRIMARY KEY (`%s`)\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;\n", first)
	}
	when := func(is bool, column string) string {
		if is {
			return column
		}
		return ""
	}
	param := "varchar(512) DEFAULT NULL"
	if s.longParam {
		param = "text"
	}
	table("xxl_job_info",
		"id int(11) NOT NULL AUTO_INCREMENT", "job_group int(11) NOT NULL", when(s.hasCron, "job_cron varchar(128) NOT NULL"), s.jobTitle+" varchar(255) NOT NULL",
		"add_time datetime DEFAULT NULL", "author varchar(64) DEFAULT NULL", "alarm_email varchar(255) DEFAULT NULL",
		when(!s.hasCron, "schedule_type varchar(50) NOT NULL DEFAULT 'NONE'"), when(!s.hasCron, "schedule_conf varchar(128) DEFAULT NULL"),
		when(!s.hasCron, "misfire_strategy varchar(50) NOT NULL DEFAULT 'DO_NOTHING'"),
		"executor_route_strategy varchar(50) DEFAULT NULL", "executor_handler varchar(255) DEFAULT NULL", "executor_param "+param,
		"executor_block_strategy varchar(50) DEFAULT NULL", "executor_timeout int(11) NOT NULL DEFAULT '0'", "executor_fail_retry_count int(11) NOT NULL DEFAULT '0'",
		"glue_type varchar(50) NOT NULL", "glue_source mediumtext", "glue_remark varchar(128) DEFAULT NULL", "glue_updatetime datetime DEFAULT NULL",
		"child_jobid varchar(255) DEFAULT NULL", "trigger_status tinyint(4) NOT NULL DEFAULT '0'", "trigger_last_time bigint(13) NOT NULL DEFAULT '0'", "trigger_next_time bigint(13) NOT NULL DEFAULT '0'")
	table("xxl_job_log", "id bigint(20) NOT NULL AUTO_INCREMENT", "job_group int(11) NOT NULL", "job_id int(11) NOT NULL", "executor_address varchar(255) DEFAULT NULL", "executor_param varchar(512) DEFAULT NULL", "trigger_time datetime DEFAULT NULL", "trigger_code int(11) NOT NULL DEFAULT '200'", "trigger_msg text", "handle_time datetime DEFAULT NULL", "handle_code int(11) NOT NULL", "handle_msg text")
	table("xxl_job_logglue", "id int(11) NOT NULL AUTO_INCREMENT", "job_id int(11) NOT NULL", "glue_type varchar(50) DEFAULT NULL", "glue_source mediumtext", "glue_remark varchar(128) NOT NULL", "add_time datetime DEFAULT NULL", "update_time datetime DEFAULT NULL")
	table("xxl_job_registry", "id int(11) NOT NULL AUTO_INCREMENT", "registry_key varchar(255) NOT NULL")
	table("xxl_job_group", "id int(11) NOT NULL AUTO_INCREMENT", "app_name varchar(64) NOT NULL", s.groupTitle+" varchar(64) NOT NULL", "address_type tinyint(4) NOT NULL DEFAULT '0'", "address_list text", when(s.hasGroupTokens, "access_token varchar(255) DEFAULT NULL"))
	table("xxl_job_user", "id int(11) NOT NULL AUTO_INCREMENT", "username varchar(50) NOT NULL", "password varchar(100) NOT NULL", when(s.hasUserToken, "token varchar(100) DEFAULT NULL"), "role tinyint(4) NOT NULL", "permission varchar(255) DEFAULT NULL")
	table("xxl_job_lock", "lock_name varchar(50) NOT NULL")
	return b.String()
}

// rows returns the rows of one old admin, in any schema.
func (s schema) rows() string {
	var b strings.Builder
	insert := func(table string, columns []string, values ...string) {
		fmt.Fprintf(&b, "INSERT INTO `%s` (%s) VALUES (%s);\n", table, "`"+strings.Join(columns, "`,`")+"`", strings.Join(values, ","))
	}
	group := []string{"id", "app_name", s.groupTitle, "address_type", "address_list"}
	insert("xxl_job_group", group, "1", "'order-service'", "'Orders'", "0", "'http://10.0.0.1:9999/'")
	insert("xxl_job_group", group, "2", "'Fixed_Group'", "'固定'", "1", "'http://10.0.0.5:9999/'")
	insert("xxl_job_group", group, "3", "'ORDER-SERVICE'", "'Again'", "0", "NULL")
	if s.hasGroupTokens {
		b.WriteString("UPDATE xxl_job_group SET access_token = 'not-for-everyone' WHERE id = 1;\n")
	}
	jobs := []struct {
		id, group                          int
		title, kind, conf, misfire         string
		route, handler, param, block, more string
		on                                 int
		next                               int64
	}{
		{1, 1, "sync it''s \\\"all\\\"", "CRON", "0 0/5 * * * ?", "DO_NOTHING", "ROUND", "orderSync", "full\\nnow; {{x}}", "SERIAL_EXECUTION", "300,2,'BEAN','',NULL,'2,2,1,99,3'", 1, 1795507800000},
		{2, 1, "child", "CRON", "0 0 1 * * ?", "DO_NOTHING", "FIRST", "mailSend", "", "DISCARD_LATER", "0,0,'BEAN','',NULL,''", 0, 0},
		{3, 1, "child beside a cron", "CRON", "0 30 9 ? * 2-6", "FIRE_ONCE_NOW", "FIRST", "report", "", "COVER_EARLY", "0,0,'BEAN','',NULL,'1'", 1, 1795570200000},
		{4, 2, "broken cron", "CRON", "0 0 0 1-15W * ?", "DO_NOTHING", "FIRST", "x", "", "SERIAL_EXECUTION", "0,0,'BEAN','',NULL,''", 1, 1795570200000},
		{5, 2, "code", "CRON", "0 0 8 * * ?", "DO_NOTHING", "RANDOM", "", "", "SERIAL_EXECUTION", "0,0,'GLUE_SHELL','df -h','2026-05-04 12:30:15',''", 0, 0},
		{6, 3, "everywhere", "CRON", "0 0 2 * * ? *", "DO_NOTHING", "SHARDING_BROADCAST", "archive", "", "SERIAL_EXECUTION", "0,0,'BEAN','',NULL,''", 1, 1795543200000},
		{7, 9, "without a group", "CRON", "0 0 2 * * ? *", "DO_NOTHING", "FIRST", "x", "", "SERIAL_EXECUTION", "0,0,'BEAN','',NULL,''", 0, 0},
	}
	for _, j := range jobs {
		columns := []string{"id", "job_group", s.jobTitle, "author", "alarm_email", "executor_route_strategy", "executor_handler", "executor_param", "executor_block_strategy",
			"executor_timeout", "executor_fail_retry_count", "glue_type", "glue_source", "glue_updatetime", "child_jobid", "trigger_status", "trigger_next_time"}
		values := []string{fmt.Sprint(j.id), fmt.Sprint(j.group), "'" + j.title + "'", "'李四'", "'ops@example.org,li@example.org'", "'" + j.route + "'", "'" + j.handler + "'", "'" + j.param + "'", "'" + j.block + "'",
			j.more, fmt.Sprint(j.on), fmt.Sprint(j.next)}
		if s.hasCron {
			columns, values = append(columns, "job_cron"), append(values, "'"+j.conf+"'")
		} else {
			columns, values = append(columns, "schedule_type", "schedule_conf", "misfire_strategy"), append(values, "'"+j.kind+"'", "'"+j.conf+"'", "'"+j.misfire+"'")
		}
		insert("xxl_job_info", columns, values...)
	}
	if !s.hasCron {
		b.WriteString("INSERT INTO xxl_job_info (id, job_group, " + s.jobTitle + ", schedule_type, schedule_conf, executor_route_strategy, executor_handler, executor_block_strategy, glue_type, trigger_status, trigger_next_time) VALUES (8,1,'fixed','FIX_RATE','30','LEAST_FREQUENTLY_USED','beat','DISCARD_LATER','BEAN',1,1795507815500),(9,1,'by hand','NONE','','FAILOVER','once','SERIAL_EXECUTION','BEAN',0,0);\n")
	}
	versions := []string{"id", "job_id", "glue_type", "glue_source", "glue_remark", "update_time"}
	insert("xxl_job_logglue", versions, "11", "5", "'GLUE_SHELL'", "'df'", "'first; \\'quoted\\''", "'2026-05-01 10:00:00'")
	insert("xxl_job_logglue", versions, "13", "5", "'GLUE_SHELL'", "'df -h'", "'now'", "'2026-05-04 12:30:15'")
	insert("xxl_job_logglue", versions, "12", "5", "'GLUE_SHELL'", "'df -k'", "'second'", "'2026-05-02 10:00:00'")
	b.WriteString("INSERT INTO xxl_job_log (id, job_group, job_id, handle_code, trigger_msg) VALUES (41,1,1,200,'<br>it''s'),(123456,1,1,500,NULL),(9,1,1,200,'');\n" +
		"INSERT INTO xxl_job_log (id, job_group, job_id, executor_address, trigger_time, trigger_code, trigger_msg, handle_time, handle_code, handle_msg) VALUES " +
		"(49,1,1,'http://10.0.0.1:9999/','2026-11-22 23:59:59',200,'too old','2026-11-23 00:00:01',200,'')," +
		"(50,1,1,'http://10.0.0.1:9999/','2026-11-23 10:00:00',200,'任务触发类型：手动触发<br>调度机器：1','2026-11-23 10:00:05',200,'ok')," +
		"(51,1,1,NULL,'2026-11-23 10:05:00',500,'任务触发类型：Cron触发<br>no executor',NULL,0,NULL)," +
		"(52,1,1,'http://10.0.0.1:9999/','2026-11-23 10:10:00',200,'','2026-11-23 10:11:00',502,'job<br>timeout')," +
		"(53,1,1,'http://10.0.0.1:9999/','2026-11-23 10:15:00',200,'still runs',NULL,0,NULL)," +
		"(54,1,99,'http://10.0.0.1:9999/','2026-11-23 10:20:00',200,'no such job','2026-11-23 10:11:00',200,'');\n")
	user := []string{"id", "username", "password", "role", "permission"}
	insert("xxl_job_user", user, "1", "'admin'", "'e10a'", "1", "NULL")
	insert("xxl_job_user", user, "2", "'li'", "'e10b'", "0", "'1,2'")
	insert("xxl_job_user", user, "3", "'wang'", "'e10c'", "0", "''")
	b.WriteString("INSERT INTO xxl_job_lock VALUES ('schedule_lock');\n")
	return b.String()
}
