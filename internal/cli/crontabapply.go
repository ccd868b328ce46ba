package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// ownerLabel is the label with the owner of a job.
const ownerLabel = "belfry/owner"

// applyImport creates the jobs of the lines, and then comments out the lines whose jobs can run.
// The server is first, so that its refusal changes nothing.
func applyImport(ctx context.Context, env Env, ask importFlags, tables []cronTable, documents []job.Document) error {
	if err := ask.refuseKept(tables); err != nil {
		return err
	}
	server, err := connect(env, ask.connection)
	if err != nil {
		return err
	}
	if documents, err = withoutPresentChannels(ctx, env, server, documents); err != nil {
		return err
	}
	v := &validation{documents: documents, imported: true}
	request, err := v.request(server.namespace)
	if err != nil {
		return err
	}
	request.Owner, request.Prune, request.DryRun = ask.owner, ask.prune, true
	would, err := server.applyAll(ctx, request)
	if err != nil {
		return v.placed(server.env, server.refused(err))
	}
	if ask.still != "" { // its jobs have no hashes in their names
		if err := refuseOthers(ctx, server, would); err != nil {
			return err
		}
	}
	_, users := barredOf(would, documents)
	if ask.allowUsers {
		if len(users) > 0 {
			return ask.allow(ctx, env, users)
		}
		env.tell("no line needs another user: nothing to allow\n")
	}
	if ask.commentOut {
		if documents, err = ask.withoutBarred(env, documents, would, users); err != nil {
			return err
		}
		v.documents = documents
		if request, err = v.request(server.namespace); err != nil {
			return err
		}
		request.Owner, request.Prune = ask.owner, ask.prune
	}
	if request.DryRun = ask.dryRun; ask.prune && !ask.dryRun && !ask.yes {
		if err := agreeToPrune(ctx, server, request); err != nil {
			return v.placed(server.env, server.refused(err))
		}
	}
	applied, err := server.applyAll(ctx, request)
	if err != nil {
		return v.placed(server.env, server.refused(err))
	}
	switch {
	case ask.still != "": // others run their jobs elsewhere
	case ask.commentOut:
		barMissing(documents, applied)
	default:
		warnOfMissing(documents, applied)
	}
	warn(env, applied)
	if err := showList(env, ask.output, applied.Results, "", resultName, func(w io.Writer) { applyText(w, env, applied) }); err != nil {
		return err
	}
	if ask.losesMail(tables) {
		env.tell("failures of these jobs are not mailed to MAILTO: define a channel, as notifications.md shows, or take the import back with --undo and repeat it with --mail-server HOST:PORT\n")
	}
	if ask.takeOver != nil && !ask.dryRun {
		return ask.takeOver.suspend(ctx, env, server)
	}
	if !ask.commentOut {
		if !ask.dryRun {
			env.tell("%s", cmp.Or(ask.still, "cron still runs these lines: remove them, or repeat the command with --comment-out\n"))
		}
		return nil
	}
	able, err := ableOf(ctx, env, server, applied)
	if err != nil {
		return err
	}
	return commentOut(ctx, env, tables, able, ask.dryRun)
}

// withoutBarred leaves out the new jobs that cannot run, or fails unless --skip-errors is given.
func (ask *importFlags) withoutBarred(env Env, documents []job.Document, would client.Applied, users []string) ([]job.Document, error) {
	barMissing(documents, would)
	barred, _ := barredOf(would, documents)
	if len(barred) == 0 {
		return documents, nil
	}
	var notes remarks
	for _, i := range barred {
		notes.add(printable(documents[i].File)+":", strconv.Itoa(documents[i].Line), ": "+printable(would.Results[i].Barred))
	}
	notes.tell(env)
	if !ask.skip {
		f := failed("the %s of %s cannot run, and nothing was changed", jobsOf(len(barred)), ask.of(len(barred)))
		if len(users) > 0 {
			return nil, f.withHint("--allow-users writes %s into the configuration of the server on this machine; --skip-errors imports the other %ss", strings.Join(users, ", "), cmp.Or(ask.unit, "line"))
		}
		return nil, f.withHint("--skip-errors imports the other %ss", cmp.Or(ask.unit, "line"))
	}
	var able []job.Document
	for i, d := range documents {
		// A new job would run beside its line as soon as it can.
		if !slices.Contains(barred, i) || would.Results[i].Result != client.Created {
			able = append(able, d)
		}
	}
	if len(able) == 0 && !ask.prune {
		return nil, failed("no %s was imported", cmp.Or(ask.unit, "line"))
	}
	return able, nil
}

// refuseKept refuses --comment-out of tables whose files this user may not replace.
func (ask *importFlags) refuseKept(tables []cronTable) error {
	for _, t := range tables {
		if !ask.commentOut || t.user != "" || t.path == "" {
			continue // crontab(1) or a person replaces it
		}
		if err := mayReplace(t.path); err != nil {
			return failed("%s: its lines cannot be commented out, and nothing was changed: %v", t.name, err).
				withHint("run this as root, or as the owner of the file who is in its group, or leave out --comment-out and change the lines by hand")
		}
	}
	return nil
}

// withoutPresentChannels removes existing channels: someone may have set their user and password,
// which the import does not know.
func withoutPresentChannels(ctx context.Context, env Env, server *remote, documents []job.Document) ([]job.Document, error) {
	rest := make([]job.Document, 0, len(documents))
	for _, d := range documents {
		if d.Channel != nil {
			_, err := server.Channel(ctx, server.namespace, d.Channel.Name)
			if err == nil {
				env.tell("channel %s/%s exists and stays as it is\n", server.namespace, d.Channel.Name)
				continue
			}
			if !client.IsType(err, client.TypeNotFound) {
				return nil, server.refused(err)
			}
		}
		rest = append(rest, d)
	}
	return rest, nil
}

func jobsOf(lines int) string {
	if lines == 1 {
		return "job"
	}
	return "jobs"
}

// barredOf returns the documents that no node may run, and the users that they name.
func barredOf(applied client.Applied, documents []job.Document) (barred []int, users []string) {
	for i, d := range documents { // deletions follow
		if applied.Results[i].Barred == "" {
			continue
		}
		barred = append(barred, i)
		if user, _, _ := d.Job.Run.AsCommand(); user != "" && !slices.Contains(users, user) {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	return barred, users
}

// barMissing bars jobs that would fail on this machine, where cron runs their lines: Debian's cron, for one,
// starts a command elsewhere if its directory is missing.
func barMissing(documents []job.Document, applied client.Applied) {
	for i, d := range documents { // deletions follow
		for _, text := range missingOfLine(d) {
			applied.Results[i].Barred = cmp.Or(applied.Results[i].Barred, text.String())
		}
	}
}

// allow writes users into the configuration of the server on this machine.
func (ask *importFlags) allow(ctx context.Context, env Env, users []string) error {
	running, reload := config.RunningFile(cmp.Or(ask.connection.Data, env.Getenv("BELFRY_DATA"), config.DefaultData(env.Getenv)))
	file := cmp.Or(ask.config, running)
	switch {
	case file == "" && reload != "":
		return failed("the server on this machine was started without a configuration file").
			withHint("start it with --config and a file that has shell: {allow_users: [%s]}", strings.Join(users, ", "))
	case file == "":
		file = packagedConfig
	}
	if err := allowUsers(ctx, env, file, cmp.Or(reload, packagedReload), users, ask.dryRun); err != nil {
		return err
	}
	env.tell("no job was created, and no line was changed: repeat the command without --allow-users when the server has read the configuration\n")
	return nil
}

// ableOf returns the names of applied jobs that run: a node may run them, and they are not paused.
func ableOf(ctx context.Context, env Env, server *remote, applied client.Applied) (map[string]bool, error) {
	able := map[string]bool{}
	for _, r := range applied.Results {
		if r.Kind != job.KindJob || r.Barred != "" {
			continue
		}
		if r.Result == client.Unchanged || r.Result == client.Changed {
			namespace, name, _ := strings.Cut(r.Name, "/")
			d, err := server.Job(ctx, namespace, name, false)
			if err != nil {
				return nil, server.refused(err)
			}
			row, err := server.read(d, job.KindJob)
			if err != nil {
				return nil, err
			}
			if row.Job.Paused {
				env.tell("job %s is paused: its line stays; belfry job resume %s\n", r.Name, r.Name)
				continue
			}
		}
		able[r.Name] = true
	}
	return able, nil
}

// commentOut comments out the lines whose jobs are able to run, after a copy of each file.
func commentOut(ctx context.Context, env Env, tables []cronTable, able map[string]bool, dryRun bool) error {
	for _, t := range tables {
		numbers := map[int]bool{}
		for _, l := range t.lines {
			if len(l.Documents) > 0 && !slices.ContainsFunc(l.Documents, func(d job.Document) bool { return d.Job != nil && !able[d.Job.FullName()] }) {
				numbers[l.Number] = true
			}
		}
		if len(numbers) == 0 {
			continue
		}
		if dryRun {
			env.tell("%s: would comment out %s\n", t.name, counted(len(numbers), "line"))
			continue
		}
		text := crontab.CommentOut(t.text, numbers)
		stamp := env.Now().UTC().Format("20060102T150405Z")
		// A leading dot keeps cron from reading the copy.
		backup := filepath.Join(filepath.Dir(t.path), "."+filepath.Base(t.path)+"-"+stamp)
		switch {
		case t.user != "":
			backup = env.path("crontab-" + t.user + "-" + stamp)
		case t.path == "":
			env.tell("standard input cannot be changed: comment out its lines by hand\n")
			continue
		}
		for n, first := 2, backup; isThere(backup); n++ { // an import within the same second
			backup = fmt.Sprintf("%s-%d", first, n)
		}
		if err := t.replace(ctx, text, backup); err != nil {
			return failed("%s: the jobs exist, and the lines are still there: %v", t.name, err).withHint("remove the lines by hand, or both run; belfry crontab import --undo takes all back")
		}
		env.tell("%s: commented out %s; the copy is %s\n", t.name, counted(len(numbers), "line"), backup)
	}
	return nil
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// undoImport restores the lines that were commented out, and deletes the jobs of the lines. The
// lines come first: a job that runs twice is better than one that does not run. It can be repeated.
func undoImport(ctx context.Context, env Env, ask importFlags, tables []cronTable) error {
	texts, marked := make([]string, len(tables)), 0
	restored := slices.Clone(tables)
	counts := make([]int, len(tables))
	for i := range restored {
		if restored[i].read != nil {
			continue // that table was not changed
		}
		var numbers []int
		texts[i], numbers = crontab.Restore(restored[i].text)
		restored[i].text, counts[i] = texts[i], len(numbers)
		marked += len(numbers)
	}
	documents, _ := readTables(env, ask, restored)
	server, names, away := jobsToDelete(ctx, env, ask, documents)
	if marked == 0 && len(names) == 0 {
		if away != nil {
			return away
		}
		if ask.still != "" {
			env.tell("there is nothing to undo: no job has the owner %s\n", ask.owner)
			return nil
		}
		env.tell("there is nothing to undo: no line begins with #belfry#, and no line has a job of the owner %s\n", ask.owner)
		return nil
	}
	if ask.dryRun {
		for i, t := range tables {
			if counts[i] > 0 {
				env.tell("%s: would restore %s\n", t.name, counted(counts[i], "line"))
			}
		}
		for _, full := range names {
			env.tell("job %s would be deleted\n", full)
		}
		return away
	}
	if len(names) > 0 {
		if err := agree(env, ask.yes, "delete %s: %s", counted(len(names), "job"), shortList(names)); err != nil {
			return err
		}
	}
	for i, t := range tables {
		switch {
		case counts[i] == 0:
			continue
		case t.user == "" && t.path == "":
			return failed("standard input cannot be changed").withHint("name the file")
		}
		if err := t.replace(ctx, texts[i], ""); err != nil {
			return failed("%s: %v", t.name, err).withHint("remove #belfry# from its lines by hand")
		}
		env.tell("%s: restored %s\n", t.name, counted(counts[i], "line"))
	}
	if away != nil {
		return failed("cron runs the lines again, and their jobs may exist: %v", away).withHint("repeat the command when the server answers, or both run")
	}
	for _, full := range names {
		namespace, name, _ := strings.Cut(full, "/")
		if _, err := server.DeleteJob(ctx, namespace, name, 0, ""); err != nil {
			return server.refused(err)
		}
		env.tell("job %s deleted\n", full)
	}
	return nil
}

// jobsToDelete returns the jobs of an owner: those that documents describe, or all of another scheduler. The
// error is for a server that does not answer.
func jobsToDelete(ctx context.Context, env Env, ask importFlags, documents []job.Document) (server *remote, names []string, err error) {
	if server, err = connect(env, ask.connection); err != nil {
		return nil, nil, err
	}
	lines := map[string]bool{}
	for _, d := range documents {
		if d.PutIn(server.namespace); d.Job != nil {
			lines[d.FullName()] = true
		}
	}
	query := client.JobQuery{Namespace: server.namespace, Labels: map[string]string{ownerLabel: ask.owner}, PageSize: pageSize}
	for {
		page, err := server.Jobs(ctx, query)
		if err != nil {
			return nil, nil, server.refused(err)
		}
		for _, d := range page.Items {
			row, err := server.read(d, job.KindJob)
			if err != nil {
				return nil, nil, err
			}
			if ask.still != "" || lines[row.FullName()] {
				names = append(names, row.FullName())
			}
		}
		if query.PageToken = page.NextPageToken; query.PageToken == "" {
			return server, names, nil
		}
	}
}

// replace writes the text of a table, unless it has changed since, after
// a copy to the path backup, unless that is "".
func (t *cronTable) replace(ctx context.Context, text, backup string) error {
	if t.user != "" {
		return replaceCrontab(ctx, t, text, backup)
	}
	if backup != "" {
		info, err := os.Stat(t.path)
		if err != nil {
			return err
		}
		if err := writeNew(backup, t.text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return replaceFile(ctx, t.path, []byte(t.text), []byte(text))
}

// replaceCrontab sets the table of a user with crontab(1).
func replaceCrontab(ctx context.Context, t *cronTable, text, backup string) error {
	now, err := crontabOf(ctx, t.user)
	if err != nil {
		return err
	}
	if now.text != t.text {
		return errors.New("the crontab was changed meanwhile")
	}
	if backup != "" {
		if err := writeNew(backup, t.text, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "crontab", "-u", t.user, "-")
	if account, err := user.Current(); err == nil && account.Username == t.user {
		cmd = exec.CommandContext(ctx, "crontab", "-")
	}
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("crontab: %s", cmp.Or(strings.TrimSpace(string(out)), err.Error()))
	}
	return nil
}

// writeNew writes a new file.
func writeNew(path, text string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Sync(), f.Close())
}
