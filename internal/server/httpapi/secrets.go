package httpapi

import (
	"context"
	"net/http"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
)

type putSecretInput struct {
	ObjectName
	Body client.SecretRequest
}

type secretOutput struct {
	Status int
	Body   client.SecretInfo
}

// secretRoutes set and list secrets. No answer has a value.
func (a *api) secretRoutes() {
	register(a, "GET /secrets", "list-secrets", "List secrets without their values", may(service.Read), func(ctx context.Context, in *listObjectsInput) (*answer[client.Page[client.SecretInfo]], error) {
		return listed(a.Service.Secrets.List(ctx, caller(ctx), in.Namespace))
	})
	register(a, "PUT /secrets/{namespace}/{name}", "put-secret", "Create or change a secret", may(service.Define, documentBody), func(ctx context.Context, in *putSecretInput) (*secretOutput, error) {
		s, created, err := a.Service.Secrets.Set(ctx, caller(ctx), in.name(), in.Body)
		if err != nil {
			return nil, err
		}
		out := &secretOutput{Status: http.StatusOK, Body: s}
		if created {
			out.Status = http.StatusCreated
		}
		return out, nil
	}, http.StatusOK, http.StatusCreated, http.StatusConflict)
	register(a, "DELETE /secrets/{namespace}/{name}", "delete-secret", "Delete a secret", may(service.Define), func(ctx context.Context, in *ObjectName) (*struct{}, error) {
		return nil, a.Service.Secrets.Delete(ctx, caller(ctx), in.name())
	}, http.StatusNotFound)
	register(a, "POST /secrets:rotate", "rotate-secrets", "Seal all secrets with the newest key", may(service.Administer), func(ctx context.Context, _ *struct{}) (*answer[client.SecretRotation], error) {
		return answered(a.Service.Secrets.Rotate(ctx, caller(ctx)))
	}, http.StatusConflict)
}
