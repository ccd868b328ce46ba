package httpapi

import (
	"context"
	"net/http"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// notificationRoutes show the notifications of channels.
func (a *api) notificationRoutes() {
	register(a, "GET /notifications", "list-notifications", "List what channels have to say", may(service.Read), func(ctx context.Context, in *listObjectsInput) (*answer[client.Page[client.Notification]], error) {
		return listed(a.Service.Notifications.List(ctx, caller(ctx), in.Namespace))
	})
	register(a, "POST /notifications/{id}/ack", "ack-notification", "Acknowledge a notification", may(service.Operate), func(ctx context.Context, in *ackInput) (*answer[client.Notification], error) {
		return answered(a.Service.Notifications.Ack(ctx, caller(ctx), in.ID))
	}, http.StatusNotFound)
	register(a, "GET /deliveries", "list-deliveries", "Show how channels deliver", may(service.Read), func(ctx context.Context, in *listObjectsInput) (*answer[client.Page[client.Delivery]], error) {
		return listed(a.Service.Notifications.Deliveries(ctx, caller(ctx), in.Namespace))
	})
	register(a, "POST /channels/{namespace}/{name}/test", "test-channel", "Send a test message to a channel", may(service.Define), func(ctx context.Context, in *ObjectName) (*answer[client.ChannelTest], error) {
		return answered(a.Service.Notifications.Test(ctx, caller(ctx), in.name()))
	}, http.StatusNotFound)
}

type ackInput struct {
	ID string `path:"id" maxLength:"64" doc:"The id of the notification."`
}
