package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Secrets sets, lists and deletes secrets. None of its answers has a value.
type Secrets struct{ keeper *secret.Keeper }

// List returns the secrets of a namespace, or of all, by name.
func (s *Secrets) List(ctx context.Context, who Caller, namespace string) ([]client.SecretInfo, error) {
	of, err := who.reads(namespace)
	if err != nil {
		return nil, err
	}
	list := []client.SecretInfo{}
	for _, namespace := range of.namespaces() {
		all, err := s.keeper.List(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for _, one := range all {
			list = append(list, shownSecret(one))
		}
	}
	return list, nil
}

func shownSecret(s *secret.Secret) client.SecretInfo {
	shown := client.SecretInfo{
		Namespace: s.Namespace, Name: s.Name, Description: s.Description, Version: s.Version,
		File: s.File, Env: s.Env, Vault: s.Vault, Created: s.Created, Changed: s.Changed, By: s.By,
	}
	if s.Sealed != nil {
		shown.Key = s.Sealed.Key
	}
	return shown
}

// Set creates or changes a secret, and reports whether it was created.
func (s *Secrets) Set(ctx context.Context, who Caller, name Name, said client.SecretRequest) (set client.SecretInfo, created bool, err error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return client.SecretInfo{}, false, err
	}
	wrong := func(path, detail string) (client.SecretInfo, bool, error) {
		return client.SecretInfo{}, false, Wrong(client.FieldError{Pointer: "/" + path, Path: path, Detail: detail})
	}
	from := secret.Source{File: said.File, Env: said.Env, Vault: said.Vault}
	given := 0
	for _, text := range []string{said.Value, said.File, said.Env, said.Vault} {
		if text != "" {
			given++
		}
	}
	switch {
	case !job.IsSecretName(name.Name):
		return wrong("name", fmt.Sprintf("%q is not the name of a secret: it has 1 to %d ASCII letters, digits and underscores", name.Name, job.SecretNameMax))
	case !job.IsNamespace(name.Namespace):
		return wrong("namespace", fmt.Sprintf("%q is not the name of a namespace", name.Namespace))
	case given != 1:
		return wrong("value", "exactly one of value, file, env and vault is expected")
	case len(said.Value) > job.SecretMax:
		return wrong("value", fmt.Sprintf("has %d bytes, at most %d are allowed", len(said.Value), job.SecretMax))
	}
	if field, err := s.keeper.Check(name.Namespace, from); err != nil {
		return wrong(field, err.Error())
	}
	made, created, err := s.keeper.Set(ctx, secret.Put{Namespace: name.Namespace, Name: name.Name, Description: said.Description, Source: from, Value: said.Value, Actor: who.Name})
	switch {
	case errors.Is(err, store.ErrConflict):
		return client.SecretInfo{}, false, changedMeanwhile("secret", name.String())
	case errors.Is(err, store.ErrLimit):
		return client.SecretInfo{}, false, refuse(client.TypeConflict, "there are %d secrets in the namespace %s already, the most that are allowed", secret.NamespaceMax, name.Namespace)
	case errors.As(err, new(*secret.KeyError)):
		return client.SecretInfo{}, false, refuse(client.TypeConflict, "%v", err)
	case err != nil:
		return client.SecretInfo{}, false, err
	}
	return shownSecret(made), created, nil
}

// Delete removes a secret. Attempts that name it fail from then on.
func (s *Secrets) Delete(ctx context.Context, who Caller, name Name) error {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return err
	}
	err := s.keeper.Delete(ctx, name.Namespace, name.Name, who.Name)
	var missing *secret.Missing
	switch {
	case errors.As(err, &missing):
		return refuse(client.TypeNotFound, "%v", missing)
	case errors.Is(err, store.ErrConflict):
		return changedMeanwhile("secret", name.String())
	}
	return err
}

// Rotate seals all values with the first key of this server.
func (s *Secrets) Rotate(ctx context.Context, who Caller) (client.SecretRotation, error) {
	if err := who.May(Administer); err != nil {
		return client.SecretRotation{}, err
	}
	done, err := s.keeper.Rotate(ctx, who.Name)
	if errors.As(err, new(*secret.KeyError)) {
		return client.SecretRotation{}, refuse(client.TypeConflict, "%v", err)
	}
	return client.SecretRotation{Key: done.Key, Sealed: done.Sealed, Before: done.Before, Elsewhere: done.Elsewhere}, err
}
