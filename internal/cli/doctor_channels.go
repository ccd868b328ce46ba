package cli

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
func channelsOf(ctx context.Context, server *remote, c config.Server) []finding {
	found := finding{Check: "channels", Status: isNote}
	about, err := server.Server(ctx)
	if err != nil {
		found.Found = "not checked: " + server.refused(err).Error()
		return []finding{found}
	}
	var list []finding
	for _, hint := range about.Hints {
		if strings.HasPrefix(hint.Check, "channel") {
			list = append(list, ofHint(hint))
		}
	}
	documents, err := server.Channels(ctx, "")
	if err != nil {
		found.Found = "not checked: " + server.refused(err).Error()
		return append(list, found)
	}
	if c.Has(store.RoleAPI) {
		for i := range documents.Items {
			decoded, err := job.Decode("", documents.Items[i].RawMessage)
			if err != nil || len(decoded) != 1 || decoded[0].Channel == nil {
				continue // from a newer version
			}
			list = append(list, secretsOf(decoded[0].Channel, c.SecretsDir())...)
		}
	}
	if len(list) == 0 {
		found.Status, found.Found = isWell, fmt.Sprintf("all deliver: %d", len(documents.Items))
		return []finding{found}
	}
	return list
}

// secretsOf returns the secrets of a channel that this user cannot read from a file.
func secretsOf(c *job.Channel, dir string) (list []finding) {
	for _, s := range c.Secrets() {
		if s.File == "" {
			continue // the server's environment differs from this command's
		}
		namespace := c.WithDefaults().Namespace
		file := filepath.Join(dir, namespace, s.File)
		f := finding{Check: "channel " + c.FullName(), Status: isWrong, Do: "put the secret into " + file + ", readable for the user of the server"}
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
