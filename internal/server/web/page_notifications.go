package web

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// notificationsView is how the channels deliver, and what they have to say.
type notificationsView struct {
	*Layout
	Lead     string
	Channels []channelRow
	Notices  []noticeRow
	Tested   string // what came of a test
	TestBad  bool
}

type channelRow struct {
	Namespace, Name, Address string
	Service                  string
	State                    State
	Waiting, Open            int
	Sent                     string
	SentAt, FailedAt         When
	Error                    string
	Next                     When
	CanTest                  bool
}

type noticeRow struct {
	ID, Channel, ChannelAddress string
	About                       string
	State                       State
	Text                        string
	Events                      []noticeEvent
	More                        int
	SentAt                      When
	Error                       string
	Acked                       string
	CanAck                      bool
}

type noticeEvent struct {
	Name, Text, Address string
	Count               int
	Since               When
	Over                bool
}

func (s *site) notifications(p *page) error { return s.showNotifications(p, http.StatusOK, "", false) }

func (s *site) showNotifications(p *page, status int, tested string, bad bool) error {
	l := p.layout("notifications.title", "notifications")
	deliveries, err := s.Service.Notifications.Deliveries(p.ctx(), p.who, l.Namespace)
	if err != nil {
		return err
	}
	notices, err := s.Service.Notifications.List(p.ctx(), p.who, l.Namespace)
	if err != nil {
		return err
	}
	v := notificationsView{Layout: l, Tested: tested, TestBad: bad}
	failing := 0
	for i := range deliveries {
		row := p.channelRow(&deliveries[i])
		if row.Error != "" {
			failing++
		}
		v.Channels = append(v.Channels, row)
	}
	for i := range notices {
		v.Notices = append(v.Notices, p.noticeRow(&notices[i]))
	}
	switch {
	case len(deliveries) == 0:
		v.Lead = p.T("notifications.no_channel")
	case failing > 0:
		v.Lead = p.T("notifications.failing", "n", failing)
	default:
		v.Lead = p.T("notifications.well", "n", len(deliveries))
	}
	l.Events, l.Again = "kind=run.done&kind=node", 10
	l.Commands = []Command{{p.T("command.shell"), "belfry channel list"}, {p.T("notifications.messages"), "belfry notification list"}, {"curl", p.curl("GET", "/api/v1/notifications", "")}}
	s.write(p, status, "notifications", v)
	return nil
}

func (p *page) channelRow(d *client.Delivery) channelRow {
	row := channelRow{
		Address: "/channels/" + d.Channel, Service: d.Service, Waiting: d.Waiting, Open: d.Open, Sent: number(d.Sent), SentAt: p.relative(d.SentAt),
		Error: clean(p.reason(d.ErrorArgs.Reason(d.Error, d.ErrorCode))),
	}
	row.Namespace, row.Name = splitName(d.Channel)
	row.CanTest = p.who.MayIn(service.Define, row.Namespace) == nil
	switch {
	case d.Paused:
		row.State = State{Class: "mute", Icon: "pause", Text: p.T("jobs.only.paused")}
	case d.Error != "":
		row.State = State{Class: "fail", Icon: "fail", Text: p.T("notifications.fails")}
		row.FailedAt, row.Next = p.relative(d.FailedAt), p.relative(d.Next)
	case d.SentAt.IsZero():
		row.State = State{Class: "mute", Icon: "ready", Text: p.T("notifications.nothing_yet")}
	default:
		row.State = State{Class: "ok", Icon: "ok", Text: p.T("notifications.delivers")}
	}
	return row
}

var noticeLooks = map[client.NotificationState]State{
	client.NotificationWaiting:  {Class: "run", Icon: "wait"},
	client.NotificationRetrying: {Class: "warn", Icon: "retry"},
	client.NotificationRefused:  {Class: "fail", Icon: "fail"},
	client.NotificationSent:     {Class: "ok", Icon: "ok"},
}

func (p *page) noticeRow(n *client.Notification) noticeRow {
	row := noticeRow{
		ID: n.ID, Channel: n.Channel, ChannelAddress: "/channels/" + n.Channel, About: clean(n.About), State: noticeLooks[n.State], More: n.More,
		SentAt: p.relative(n.SentAt), Error: clean(p.reason(n.ErrorArgs.Reason(n.Error, n.ErrorCode))),
	}
	row.State.Text = p.T("notifications." + string(n.State))
	namespace, _ := splitName(n.Channel)
	row.CanAck = n.Open && n.AckedBy == "" && p.who.MayIn(service.Operate, namespace) == nil
	if n.AckedBy != "" {
		row.Acked = p.T("notifications.acked_by", "who", clean(n.AckedBy), "when", p.distance(n.AckedAt))
	}
	for i := range n.Events {
		e := &n.Events[i]
		text := p.withCause(p.reason(e.TextArgs.Reason(e.Text, e.TextCode)), e.Text, &client.Failure{Cause: e.Cause})
		event := noticeEvent{Name: p.T("notice." + string(e.Event)), Text: short(text), Count: e.Count, Since: p.relative(e.First), Over: !e.Over.IsZero()}
		switch {
		case !e.Run.IsZero():
			event.Address = "/runs/" + e.Run.String()
		case e.Job != "":
			event.Address = "/jobs/" + e.Job
		case e.Owner != "":
			event.Address = jobsOf(e.Owner)
		case e.Node != "":
			event.Address = "/nodes#" + e.Node
		}
		row.Events = append(row.Events, event)
	}
	return row
}

// ackNotice says that a person has seen a notification.
func (s *site) ackNotice(p *page) error {
	if _, err := s.Service.Notifications.Ack(p.ctx(), p.who, p.r.PathValue("id")); err != nil {
		return err
	}
	return p.done("/notifications", "acked")
}

// testChannel sends a message now, and shows what the service has answered.
func (s *site) testChannel(p *page) error {
	result, err := s.Service.Notifications.Test(p.ctx(), p.who, p.namedJob())
	if err != nil {
		return err
	}
	took := p.took(time.Duration(result.Seconds * float64(time.Second)))
	if !result.Delivered {
		return s.showNotifications(p, http.StatusOK, p.T("notifications.test_failed", "name", p.namedJob().String(), "text", clean(p.reason(result.ErrorArgs.Reason(result.Error, result.ErrorCode)))), true)
	}
	return s.showNotifications(p, http.StatusOK, p.T("notifications.tested", "name", p.namedJob().String(), "d", took), false)
}

// channelView is the editor of a channel: its document as text.
type channelView struct {
	*Layout
	Of, Address string
	Name        string
	Version     int64
	Text        string
	Lines       int
	Problems    []editProblem
	Checked     bool // it is right
	Diff        []diffLine
	IsSame      bool
}

// newChannel is what a new channel begins with. Secrets are in files of the server.
const newChannel = "kind: channel\nname: ops\nto:\n  slack:\n    url:\n      name: slack_url\nrules:\n  - events:\n      - failed\n      - recovered\n      - missed\n"

func (s *site) newChannelPage(p *page) error {
	return p.show("channel", p.channelView("", 0, newChannel))
}

func (s *site) channelPage(p *page) error {
	d, err := s.Service.Channels.Get(p.ctx(), p.who, p.namedJob())
	if err != nil {
		return err
	}
	document, err := client.DocumentOf(d)
	if err != nil {
		return err
	}
	text, err := yamlOf(document)
	if err != nil {
		return err
	}
	return p.show("channel", p.channelView(p.namedJob().String(), d.Version(), text))
}

func (p *page) channelView(of string, version int64, text string) channelView {
	v := channelView{Of: of, Version: version, Text: text, Lines: editorRows(text), Address: "/channels/new"}
	v.Layout = p.layout("channel.new", "notifications")
	if of != "" {
		v.Layout = p.layout("channel.title", "notifications", "name", of)
		_, v.Name = splitName(of)
		v.Address = "/channels/" + of
		v.Commands = []Command{{p.T("command.shell"), "belfry channel test " + of}}
	}
	v.Layout.Namespace = ""
	v.Commands = append(v.Commands, Command{p.T("save"), "belfry apply -f channel.yaml"})
	return v
}

// saveChannel checks the document of a channel, or saves it.
func (s *site) saveChannel(p *page) error {
	text, of := strings.ReplaceAll(p.r.PostForm.Get("document"), "\r\n", "\n"), ""
	if p.r.PathValue("name") != "" {
		of = p.namedJob().String()
	}
	v := p.channelView(of, 0, text)
	list, err := job.Decode("", []byte(text))
	var problems job.Problems
	if errors.As(err, &problems) {
		v.Problems = p.mistakes(problems)
	} else if err != nil {
		return err
	}
	if len(v.Problems) == 0 && (len(list) != 1 || list[0].Channel == nil) {
		v.Problems = []editProblem{{Text: p.T("channel.is_none")}}
	}
	save := p.r.PostForm.Get("action") == "save"
	if len(v.Problems) > 0 {
		s.writeChannel(p, save, http.StatusUnprocessableEntity, v)
		return nil
	}
	d, err := client.DocumentOf(list[0])
	if err != nil {
		return err
	}
	applied, err := s.Service.Documents.Apply(p.ctx(), p.who, client.Apply{Documents: []client.Document{d}, DryRun: !save, Diff: true})
	if err != nil {
		e := service.ErrorOf(err)
		if e.Type == client.TypeInternal || e.Away() {
			return err
		}
		v.Problems = p.refusals(e)
		s.writeChannel(p, save, statuses[e.Type], v)
		return nil
	}
	if save {
		return p.done("/notifications", "saved")
	}
	v.Checked = true
	for _, r := range applied.Results {
		v.Diff, v.IsSame = diffLines(r.Diff), r.Result == client.Unchanged
	}
	return p.show("channel", v)
}

// writeChannel answers with the problems of a channel: a check is answered with success, as the check of a job is.
func (s *site) writeChannel(p *page, save bool, status int, v channelView) {
	if !save {
		status = http.StatusOK
	}
	s.write(p, status, "channel", v)
}

func (s *site) deleteChannel(p *page) error {
	if p.r.PostForm.Get("confirm") != p.namedJob().Name {
		return service.WrongParameter("confirm", phrase.NotChannelName, phrase.TypeName.Of(p.namedJob().Name))
	}
	if err := s.Service.Channels.Delete(p.ctx(), p.who, p.namedJob(), service.Expect{}); err != nil {
		return err
	}
	return p.done("/notifications", "channel_deleted")
}
