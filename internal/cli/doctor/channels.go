package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// channelsOf reports whether notification channels exist and deliver, and whether this server has their
// secrets.
func channelsOf(ctx context.Context, server *Server, c config.Server) []Finding {
	found := Finding{Check: "channels", Status: Note}
	about, err := server.Server(ctx)
	if err != nil {
		found.Found = "not checked: " + server.Refused(err).Error()
		return []Finding{found}
	}
	var list []Finding
	for _, hint := range about.Hints {
		if strings.HasPrefix(hint.Check, "channel") {
			list = append(list, OfHint(hint))
		}
	}
	documents, err := server.Channels(ctx, "")
	if err != nil {
		found.Found = "not checked: " + server.Refused(err).Error()
		return append(list, found)
	}
	if c.Has(store.RoleAPI) {
		for i := range documents.Items {
			decoded, err := job.Decode("", documents.Items[i].RawMessage)
			if err != nil || len(decoded) != 1 || decoded[0].Channel == nil {
				continue // from a newer version
			}
			list = append(list, SecretsOf(decoded[0].Channel, c.SecretsDir())...)
		}
	}
	if len(list) == 0 {
		found.Status, found.Found = Well, fmt.Sprintf("all deliver: %d", len(documents.Items))
		return []Finding{found}
	}
	return list
}

// SecretsOf returns the secrets of a channel that this user cannot read from a file.
func SecretsOf(c *job.Channel, dir string) (list []Finding) {
	for _, s := range c.Secrets() {
		if s.File == "" {
			continue // the server's environment differs from this command's
		}
		namespace := c.WithDefaults().Namespace
		file := filepath.Join(dir, namespace, s.File)
		f := Finding{Check: "channel " + c.FullName(), Status: Wrong, Do: "put the secret into " + file + ", readable for the user of the server"}
		data, err := os.ReadFile(file)
		var at *fs.PathError
		switch {
		case errors.As(err, &at):
			f.Found = fmt.Sprintf("secret %s: %v", s.File, at.Err)
		case err != nil:
			f.Found = fmt.Sprintf("secret %s: %v", s.File, err)
		case len(strings.TrimSpace(string(data))) == 0:
			f.Found = fmt.Sprintf("secret %s is empty", s.File)
		default:
			continue
		}
		list = append(list, f)
	}
	return list
}
