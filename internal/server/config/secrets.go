package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Secrets configures where this node has the keys of secrets, and other places of secrets.
type Secrets struct {
	KeyFile    string   `json:"key_file,omitzero" max:"4096" doc:"The file of the keys that seal secrets, which only its user can read. All servers need the same keys." default:"secret.key in the data directory: made if the store is a file, and else, if it is there, opens values and seals none" why:"a copy of the store alone opens no secret"`
	KeyCommand []string `json:"key_command,omitzero" items:"100" max:"4096" doc:"A program with its arguments that prints these keys, in place of the file." why:"keys can stay in a key service"`
	Vault      Vault    `json:"vault,omitzero" doc:"From where secrets are read that name a place in Vault."`
}

// Vault is how values are read from HashiCorp Vault or OpenBao.
type Vault struct {
	Address   URL          `json:"address,omitzero" max:"1024" doc:"The address of Vault or OpenBao, for example https://vault.example.com:8200." why:"without it nothing is read from Vault"`
	TokenFile string       `json:"token_file,omitzero" max:"4096" doc:"The file of the token, which is read for each request." why:"an agent of Vault renews it there"`
	Namespace string       `json:"namespace,omitzero" max:"256" doc:"The namespace of Vault Enterprise." why:"most installations have none"`
	CA        string       `json:"ca,omitzero" max:"4096" doc:"A file with the certificates to trust." default:"the authorities of the system" why:"Vault often has a certificate of its own"`
	Paths     []string     `json:"paths,omitzero" items:"100" max:"512" doc:"What may be read, as mount/path: {namespace} is that of the secret, * at the end stands for anything. For example kv/belfry/{namespace}/*." default:"nothing" why:"an administrator of one namespace must not read the secrets of another"`
	Cache     job.Duration `json:"cache,omitzero" min:"1s" max:"1h" doc:"How long a value is used again." default:"1m" why:"many attempts a second need no request each"`
	Timeout   job.Duration `json:"timeout,omitzero" min:"1s" max:"30s" doc:"How long a request may take." default:"10s" why:"an attempt waits for it"`
}

// KeyFileName is the name of the key file in a data directory.
const KeyFileName = "secret.key"

// KeyFile returns the key file of secrets, "" for none, and whether the server creates it. Nodes that
// share a store need the same keys, so that none is created. A file left in the data directory by a
// copied store is borrowed: it opens values but seals none.
func (s *Server) KeyFile() (file string, isNew, borrowed bool) {
	switch {
	case len(s.Secrets.KeyCommand) > 0:
		return "", false, false
	case s.Secrets.KeyFile == "":
		own := s.Store.File() != ""
		return filepath.Join(s.Data, KeyFileName), own, !own
	}
	return s.Secrets.KeyFile, false, false
}

// beside returns the settings with files relative to the directory of the configuration.
func (s Secrets) beside(dir string) Secrets {
	for _, name := range []*string{&s.KeyFile, &s.Vault.TokenFile, &s.Vault.CA} {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(dir, *name)
		}
	}
	return s
}

// check reports conflicting settings.
func (s Secrets) check() error {
	v := s.Vault
	switch {
	case s.KeyFile != "" && len(s.KeyCommand) > 0:
		return errors.New("secrets.key_file and secrets.key_command cannot be combined: keep one of them")
	case v.Address == "" && (v.TokenFile != "" || len(v.Paths) > 0 || v.CA != "" || v.Namespace != ""):
		return errors.New("secrets.vault has no address: set secrets.vault.address")
	case v.Address != "" && v.TokenFile == "":
		return errors.New("secrets.vault.token_file is missing: the file of the token for secrets.vault.address")
	}
	for i, path := range v.Paths {
		prefix, all := strings.CutSuffix(strings.ReplaceAll(path, "{namespace}", "x"), "*")
		if all && !strings.HasSuffix(prefix, "/") {
			return fmt.Errorf("secrets.vault.paths[%d]: the * of %q must follow a /: else namespace web could read what is web-shop's", i, path)
		}
		if mount, rest, ok := strings.Cut(prefix, "/"); !ok || mount == "" || strings.ContainsAny(prefix, "*{}?#%") || strings.Contains(rest, "..") {
			return fmt.Errorf("secrets.vault.paths[%d]: %q is not mount/path, with {namespace} and a * at the end where they are wanted, for example kv/belfry/{namespace}/*", i, path)
		}
	}
	return nil
}
