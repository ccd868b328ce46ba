package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"aead.dev/minisign"
)

const (
	checksumsName = "SHA256SUMS"
	repository    = "https://github.com/belfry-cron/belfry"
	// passwordVariable is the environment variable with the password of the key that signs.
	passwordVariable = "MINISIGN_PASSWORD"
)

// statement is an attestation of in-toto, version 1, with the provenance of SLSA, version 1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string         `json:"buildType"`
			ExternalParameters   map[string]any `json:"externalParameters"`
			ResolvedDependencies []resource     `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// resource is a file or a source, with its digests.
type resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// provenance writes what files of the release are made of, and returns the name of the file. Like them it
// has the same bytes each time: it names no machine and no time.
func (r *release) provenance(ctx context.Context, names []string) (string, error) {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range names {
		sum, err := sumOf(filepath.Join(r.dir, name))
		if err != nil {
			return "", err
		}
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	var platforms []string
	for _, p := range r.platforms {
		platforms = append(platforms, p.String())
	}
	of := &s.Predicate.BuildDefinition
	of.BuildType = repository + "/tree/main/packaging"
	of.ExternalParameters = map[string]any{"version": r.version, "platforms": platforms, "bare": r.bare}
	of.ResolvedDependencies = []resource{{Name: "go", URI: "https://go.dev/dl/", Annotations: map[string]any{"version": runtime.Version()}}}
	if commit, err := r.commit(ctx); err == nil {
		of.ResolvedDependencies = append(of.ResolvedDependencies, commit)
	}
	for _, name := range []string{"go.sum", "packaging/go.sum", "packaging/debian.list"} {
		sum, err := sumOf(filepath.Join(r.root, name))
		if err != nil {
			return "", err
		}
		of.ResolvedDependencies = append(of.ResolvedDependencies, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	s.Predicate.RunDetails.Builder.ID = of.BuildType
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return "", err
	}
	name := "belfry-" + r.version + ".intoto.json"
	return name, os.WriteFile(filepath.Join(r.dir, name), append(text, '\n'), 0o644)
}

// commit returns the commit of the release, and notes whether files differ from it.
func (r *release) commit(ctx context.Context) (resource, error) {
	out, err := r.command(ctx, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return resource{}, err
	}
	changed, err := r.command(ctx, nil, "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return resource{}, err
	}
	is := resource{Name: "belfry", URI: "git+" + repository, Digest: map[string]string{"gitCommit": strings.TrimSpace(string(out))}}
	if len(changed) > 0 {
		is.Annotations = map[string]any{"modified": true}
	}
	return is, nil
}

// maySign refuses to sign what nobody could build again.
func (r *release) maySign(ctx context.Context) error {
	commit, err := r.commit(ctx)
	if err == nil && commit.Annotations != nil {
		err = errors.New("files differ from the commit: commit them first")
	}
	if err != nil {
		return fmt.Errorf("sign the release: %w", err)
	}
	return nil
}

// sign signs the checksums of the release, as minisign does.
func (r *release) sign() error {
	key, err := signer(r.key)
	if err != nil {
		return fmt.Errorf("sign with %s: %w", r.key, err)
	}
	file := filepath.Join(r.dir, checksumsName)
	sums, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	comment := fmt.Sprintf("timestamp:%d\tfile:%s\tbelfry %s", r.date.Unix(), checksumsName, r.version)
	return os.WriteFile(file+".minisig", minisign.SignWithComments(key, sums, comment, "signature of belfry "+r.version), 0o644)
}

// signer reads a private key of minisign.
func signer(file string) (key minisign.PrivateKey, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return key, err
	}
	if !minisign.IsEncrypted(text) {
		return key, key.UnmarshalText(text)
	}
	password := os.Getenv(passwordVariable)
	if password == "" {
		return key, fmt.Errorf("the key has a password: set %s", passwordVariable)
	}
	return minisign.DecryptKey(password, text)
}
