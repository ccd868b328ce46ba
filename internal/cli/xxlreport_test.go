package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli/xxltables"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/job"
)

func TestTheReportOfAnImportIsAPageInBothLanguages(t *testing.T) {
	plan := &xxltables.Plan{
		FirstNumber: 1_000_007,
		Groups: []xxltables.GroupPlan{
			{
				Group: xxltables.Group{ID: 1, AppName: `<script>alert(1)</script>`}, Namespace: "orders",
				Executors: &job.Executors{Addresses: []string{`http://10.0.0.7:9999/"onmouseover="x`}},
				Notes:     []xxltables.Note{{Field: "address_list", Text: phrase.NotTakenOver.Of(phrase.Said.Of("<img src=x>"))}},
			},
			{Group: xxltables.Group{ID: 2, AppName: "empty"}, Namespace: "empty"},
		},
		People:   []xxltables.Note{{Field: "</td><b>admin", Text: phrase.NoRights}},
		Channels: []*job.Channel{{Namespace: "orders", Name: "alarm", To: job.Service{Mail: &job.MailService{To: []string{"a<b>@example.org"}}}}},
		Runs:     make([]xxltables.RunPlan, 2),
		Shared:   []xxltables.SharedNote{{Note: xxltables.Note{Field: "glue_type", Text: phrase.GlueNeedsNodes}, Jobs: []int64{11, 12, 13}}},
	}
	next := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	made := func(id, group int64, status string, change func(*xxltables.JobPlan)) {
		p := xxltables.JobPlan{
			Old: &xxltables.Job{ID: id, Group: group, Description: "sync\u202e<i>", ScheduleType: "CRON", ScheduleConf: "0 0/5 * * * ?", Next: next},
			Job: &job.Job{Namespace: "orders", Name: "sync", Labels: map[string]string{xxltables.StatusLabel: status}}, Next: next,
		}
		if change != nil {
			change(&p)
		}
		plan.Jobs = append(plan.Jobs, p)
	}
	made(11, 1, xxltables.StatusStarted, nil)
	made(12, 1, xxltables.StatusChild, func(p *xxltables.JobPlan) {
		p.Notes = []xxltables.Note{{Field: "child_jobid", Text: phrase.ItselfLeftOut.Of("12")}}
		p.Versions = []*job.Job{p.Job}
	})
	made(13, 9, "", func(p *xxltables.JobPlan) {
		p.Job, p.Problem = nil, phrase.InField.Of("job_group", phrase.NoSuchGroup.Of(9))
	})

	for lang, want := range map[i18n.Lang][]string{
		i18n.Chinese: {
			`<html lang="zh">`, "从 xxl-job-admin 导入的报告", "原调度中心的时区：Asia/Shanghai", "12 是任务自身：已忽略", "1 个历史版本的代码保留为任务修订", "3 个任务：只有节点配置了 xxl.glue: true", `<span class="mono">11, 12, 13</span>`, "已停止，由父任务触发",
			"没有任何分组的权限：不需要令牌", "分组不存在的任务", "无法导入：</b> job_group：没有分组 9", "迁移 2 条历史调度日志", "新的执行从编号 1000007 开始",
		},
		i18n.English: {
			`<html lang="en">`, "<title>Import from xxl-job-admin</title>", "12 is the job itself: left out", "1 earlier version of the code becomes a revision", "Not imported:</b> job_group",
			"2026-11-27 08:00:00 &#43;08:00", "The group has no job.", "a&lt;b&gt;@example.org", `<tr class="plain">`, `<tr class="noted">`, `<tr class="wrong">`,
		},
	} {
		dir := t.TempDir()
		env := Env{Dir: dir, Stderr: &strings.Builder{}, Now: func() time.Time { return next }}
		if err := writeReport(env, xxlImportFlags{zone: "Asia/Shanghai", report: "report.html", lang: string(lang)}, plan); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "report.html"))
		if err != nil {
			t.Fatal(err)
		}
		page := string(text)
		for _, part := range want {
			if !strings.Contains(page, part) {
				t.Errorf("%s: the page lacks %q", lang, part)
			}
		}
		for _, part := range []string{"<script", "<img", "<i>", `"onmouseover=`, "</td><b>admin", "\u202e", "xxlreport."} {
			if strings.Contains(page, part) {
				t.Errorf("%s: the page has %q", lang, part)
			}
		}
	}
}
