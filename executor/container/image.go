package container

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/executor/internal/pattern"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

// progressEvery is how often the progress of a pull is written to the output of the attempt.
const progressEvery = 5 * time.Second

// image returns the image of the attempt, pulling it if necessary, or the reason why it is not
// available.
func (r *attempt) image(ctx context.Context) (image engine.Image, why job.Reason, err error) {
	name := r.work.Image
	if r.work.Pull != job.PullAlways {
		image, err = r.engine.Image(ctx, name)
		if !engine.IsNotFound(err) {
			return image, why, err
		}
		if r.work.Pull == job.PullNever {
			return image, reason.NoImage.Of(name), nil
		}
	}
	login, ok := r.login()
	if !ok {
		return image, reason.LoginUnknown.Of(r.work.Registry.Secret), nil
	}
	// The pull is an effect that takes time: the timeout runs, and the output shows it.
	if err := r.start(); err != nil {
		return image, why, errUnstarted{err}
	}
	if err := r.pull(ctx, name, login); err != nil {
		if engine.IsAway(err) {
			return image, why, err
		}
		return image, reason.PullFailed.Of(name, words(err)), nil
	}
	image, err = r.engine.Image(ctx, name)
	return image, why, err
}

// pull pulls an image, and writes its progress to the output.
func (r *attempt) pull(ctx context.Context, name string, login *engine.Login) error {
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(r.out.Stderr, "belfry: "+format+"\n", args...)
	}
	say("pulling %s", name)
	began := time.Now()
	at := began
	layers := map[string][2]int64{} // loaded and total bytes per layer
	err := r.engine.Pull(ctx, name, login, func(p engine.Progress) {
		if p.ID != "" && p.ProgressDetail.Total > 0 && p.Status == "Downloading" {
			layers[p.ID] = [2]int64{p.ProgressDetail.Current, p.ProgressDetail.Total}
		}
		if time.Since(at) < progressEvery {
			return
		}
		at = time.Now()
		var loaded, all int64
		for _, l := range layers {
			loaded, all = loaded+l[0], all+l[1]
		}
		const mb = 1e6
		say("pulling %s: %.1f of %.1f MB after %s", name, float64(loaded)/mb, float64(all)/mb, shortly(time.Since(began)))
	})
	if err != nil {
		say("pulling %s failed: %v", name, err)
		return err
	}
	say("pulled %s in %s", name, shortly(time.Since(began)))
	return nil
}

// login returns the login for the registry of the image, nil for none. ok is false if the secret
// has none for it.
func (r *attempt) login() (login *engine.Login, ok bool) {
	if r.work.Registry == nil {
		return nil, true
	}
	registry, _, _ := strings.Cut(pattern.FullName(r.work.Image), "/")
	return loginOf(r.work.Registry.Login(), registry)
}

// hub is the name of docker.io in files of docker login.
const hub = "https://index.docker.io/v1/"

// loginOf reads USER:PASSWORD, or a config.json of docker login.
func loginOf(text, registry string) (*engine.Login, bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		user, password, ok := strings.Cut(text, ":")
		return &engine.Login{User: user, Password: password, Server: registry}, ok && user != ""
	}
	var file struct {
		Auths map[string]struct{ Auth, Username, Password string }
	}
	if json.Unmarshal([]byte(text), &file) != nil {
		return nil, false
	}
	names := []string{registry, "https://" + registry, "http://" + registry}
	if registry == "docker.io" {
		names = append(names, hub, "index.docker.io")
	}
	for _, name := range names {
		entry, ok := file.Auths[name]
		if !ok {
			continue
		}
		if auth, err := base64.StdEncoding.DecodeString(entry.Auth); err == nil && entry.Auth != "" {
			entry.Username, entry.Password, ok = strings.Cut(string(auth), ":")
		}
		return &engine.Login{User: entry.Username, Password: entry.Password, Server: registry}, ok && entry.Username != ""
	}
	return nil, false
}
