package client

import (
	"context"
	"net/http"
	"time"
)

// SecretInfo is a named value without the value.
type SecretInfo struct {
	Namespace   string    `json:"namespace" doc:"The namespace whose jobs may use it."`
	Name        string    `json:"name" doc:"Its name."`
	Description string    `json:"description,omitempty" doc:"What it is for."`
	Version     int64     `json:"version" doc:"Every change increments it."`
	Key         string    `json:"key,omitempty" doc:"The id of the key that seals the value in the store."`
	File        string    `json:"file,omitempty" doc:"The file of the servers that has the value."`
	Env         string    `json:"env,omitempty" doc:"The end of the name of the variable of the servers that has the value."`
	Vault       string    `json:"vault,omitempty" doc:"The place in Vault that has the value."`
	Created     time.Time `json:"created" doc:"When it was created."`
	Changed     time.Time `json:"changed" doc:"When it was set last."`
	By          string    `json:"by" doc:"The token that set it last."`
}

// FullName returns "namespace/name".
func (s *SecretInfo) FullName() string { return s.Namespace + "/" + s.Name }

// SecretRequest sets a secret, by exactly one of Value, File, Env and Vault.
type SecretRequest struct {
	Value       string `json:"value,omitempty" doc:"The value. No answer ever has it."`
	File        string `json:"file,omitempty" maxLength:"128" doc:"The name of a file in the directory of the namespace in notify.secrets of the servers."`
	Env         string `json:"env,omitempty" maxLength:"128" doc:"The end of the name of a variable of the servers: with TOKEN in the namespace web-shop it is BELFRY_SECRET_WEB_SHOP__TOKEN."`
	Vault       string `json:"vault,omitempty" maxLength:"512" doc:"A place in the KV API of Vault: mount/path#field."`
	Description string `json:"description,omitempty" maxLength:"1024" doc:"What it is for."`
}

// SecretRotation is the result of a rotation.
type SecretRotation struct {
	Key       string `json:"key" doc:"The key that seals all values now."`
	Sealed    int    `json:"sealed" doc:"Values that were sealed again."`
	Before    int    `json:"before" doc:"Values that were sealed with this key before."`
	Elsewhere int    `json:"elsewhere" doc:"Secrets whose values are not in the store."`
}

// Secrets returns the secrets of a namespace, "" for all, by name.
func (c *Client) Secrets(ctx context.Context, namespace string) (Page[SecretInfo], error) {
	var page Page[SecretInfo]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/secrets", query: values("namespace", namespace), answer: &page})
}

// SetSecret creates or changes a secret.
func (c *Client) SetSecret(ctx context.Context, namespace, name string, r SecretRequest) (SecretInfo, error) {
	var s SecretInfo
	return s, c.do(ctx, call{method: http.MethodPut, path: pathOf("secrets", namespace, name), body: r, answer: &s})
}

// DeleteSecret removes a secret. Later attempts that refer to it fail.
func (c *Client) DeleteSecret(ctx context.Context, namespace, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathOf("secrets", namespace, name)})
}

// RotateSecrets seals all values with the first key of the server.
func (c *Client) RotateSecrets(ctx context.Context) (SecretRotation, error) {
	var r SecretRotation
	return r, c.do(ctx, call{method: http.MethodPost, path: "/secrets:rotate", answer: &r})
}
