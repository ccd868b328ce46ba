package service

import (
	"context"
	"errors"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/phrase"
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
func (s *Secrets) Set(ctx context.Context, who Caller, name Name, request client.SecretRequest) (set client.SecretInfo, created bool, err error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return client.SecretInfo{}, false, err
	}
	wrong := func(path string, detail phrase.Text, hint ...phrase.Text) (client.SecretInfo, bool, error) {
		return client.SecretInfo{}, false, WrongField(path, detail, hint...)
	}
	from := secret.Source{File: request.File, Env: request.Env, Vault: request.Vault}
	given := 0
	for _, text := range []string{request.Value, request.File, request.Env, request.Vault} {
		if text != "" {
			given++
		}
	}
	switch {
	case !job.IsSecretName(name.Name):
		return wrong("name", phrase.NotSecretName.Of(phrase.Quoted(name.Name)), phrase.SecretNameForm.Of(job.SecretNameMax))
	case !job.IsNamespace(name.Namespace):
		return wrong("namespace", phrase.NotNamespace.Of(phrase.Quoted(name.Namespace)))
	case given != 1:
		return wrong("value", phrase.OneSecretSource)
	case len(request.Value) > job.SecretMax:
		return wrong("value", phrase.HasBytes.Of(len(request.Value), job.SecretMax))
	}
	if field, err := s.keeper.Check(name.Namespace, from); err != nil {
		return wrong(field, phrase.OfError(err))
	}
	result, created, err := s.keeper.Set(ctx, secret.Put{Namespace: name.Namespace, Name: name.Name, Description: request.Description, Source: from, Value: request.Value, Actor: who.Name})
	switch {
	case errors.Is(err, store.ErrConflict):
		return client.SecretInfo{}, false, changedMeanwhile("secret", name.String())
	case errors.Is(err, store.ErrLimit):
		return client.SecretInfo{}, false, Refuse(client.TypeConflict, phrase.TooManySealed.Of(secret.NamespaceMax, name.Namespace))
	case errors.As(err, new(*secret.KeyError)):
		return client.SecretInfo{}, false, Refuse(client.TypeConflict, phrase.OfError(err))
	case err != nil:
		return client.SecretInfo{}, false, err
	}
	return shownSecret(result), created, nil
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
		return Refuse(client.TypeNotFound, missing.Text())
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
		return client.SecretRotation{}, Refuse(client.TypeConflict, phrase.OfError(err))
	}
	return client.SecretRotation{Key: done.Key, Sealed: done.Sealed, Before: done.Before, Elsewhere: done.Elsewhere}, err
}
