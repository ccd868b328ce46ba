package web

import "github.com/belfry-cron/belfry/client"

// firstView is the overview of a server without jobs.
type firstView struct {
	*Layout
	Line    string
	Words   string
	Problem string
	Next    []nextRow
	Facts   []fact
	Hints   []client.Hint
}

// firstLine is a line to begin with.
const firstLine = "30 2 * * 1-5 /usr/local/bin/report.sh"

// firstStart explains a line of a crontab and leads to a first job.
func (s *site) firstStart(p *page, l *Layout) error {
	v := firstView{Layout: l, Line: p.query("line")}
	if v.Line == "" {
		v.Line = firstLine
	}
	var err error
	if v.Facts, v.Hints, err = s.serverFacts(p); err != nil {
		return err
	}
	v.Words, v.Next, v.Problem = p.explainLine(v.Line)
	l.Events = "kind=job"
	l.Commands = []Command{{p.T("command.shell"), "crontab -l | belfry crontab import -"}, {p.T("first.file"), "belfry apply -f jobs.yaml"}}
	return p.show("first", v)
}
