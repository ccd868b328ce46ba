// Package kube makes the few calls to the API of Kubernetes that Jobs and CronJobs need, over HTTP. It
// decides nothing.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// answerMax bounds an answer: a list of CronJobs with some ten thousand of them.
	answerMax = 64 << 20
	// messageMax bounds the message of a refusal.
	messageMax = 500
	// idleConnections are kept to a cluster: as many as a node polls at once.
	idleConnections = 16
)

// Client calls the API of a cluster. Use [Open] or [InCluster].
type Client struct {
	// Context names the cluster, and Namespace is the namespace of its context.
	Context, Namespace string

	server           string
	token, tokenFile string
	http             *http.Client
}

// Close releases the idle connections.
func (c *Client) Close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// Status is a refusal of a cluster.
type Status struct {
	Code    int
	Reason  string
	Message string
}

// Error implements error.
func (s *Status) Error() string { return s.Message }

// IsNotFound reports whether an object does not exist.
func IsNotFound(err error) bool { return codeOf(err) == http.StatusNotFound }

// IsConflict reports whether an object exists already or was changed.
func IsConflict(err error) bool { return codeOf(err) == http.StatusConflict }

// IsOverQuota reports whether a quota of the namespace has no room.
func IsOverQuota(err error) bool {
	return codeOf(err) == http.StatusForbidden && strings.Contains(err.Error(), "exceeded quota")
}

// IsRefusal reports whether the cluster has refused a call in a way that repeating it does not change.
// An expired token is replaced, and so no refusal.
func IsRefusal(err error) bool {
	switch code := codeOf(err); code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusConflict:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// IsAway reports whether the cluster has not answered, or cannot now.
func IsAway(err error) bool {
	code := codeOf(err)
	return err != nil && (code == 0 || code == http.StatusTooManyRequests || code >= 500)
}

func codeOf(err error) int {
	var s *Status
	if errors.As(err, &s) {
		return s.Code
	}
	return 0
}

func inNamespace(group, namespace, kind string) string {
	return group + "/namespaces/" + url.PathEscape(namespace) + "/" + kind
}

func jobPath(namespace, name string) string {
	return inNamespace("/apis/batch/v1", namespace, "jobs/") + url.PathEscape(name)
}

// CreateJob creates a Job. Unknown fields are refused.
func (c *Client) CreateJob(ctx context.Context, namespace string, manifest []byte) error {
	return c.call(ctx, http.MethodPost, inNamespace("/apis/batch/v1", namespace, "jobs")+"?fieldValidation=Strict", "application/json", manifest, nil)
}

// Job returns a Job.
func (c *Client) Job(ctx context.Context, namespace, name string) (j *Job, err error) {
	j = new(Job)
	return j, c.call(ctx, http.MethodGet, jobPath(namespace, name), "", nil, j)
}

// DeleteJob deletes a Job once its pods have ended, with their grace.
func (c *Client) DeleteJob(ctx context.Context, namespace, name string) error {
	return c.call(ctx, http.MethodDelete, jobPath(namespace, name), "application/json", []byte(`{"propagationPolicy":"Foreground"}`), nil)
}

// Pods returns the pods of a Job.
func (c *Client) Pods(ctx context.Context, namespace, job string) ([]Pod, error) {
	var list struct{ Items []Pod }
	selector := url.Values{"labelSelector": {"batch.kubernetes.io/job-name=" + job}}
	err := c.call(ctx, http.MethodGet, inNamespace("/api/v1", namespace, "pods")+"?"+selector.Encode(), "", nil, &list)
	return list.Items, err
}

// Log returns the log of a container from a second on, with a time before each line.
func (c *Client) Log(ctx context.Context, namespace, pod, container string, since time.Time) (io.ReadCloser, error) {
	query := url.Values{"container": {container}, "timestamps": {"true"}}
	if !since.IsZero() {
		query.Set("sinceTime", since.UTC().Format(time.RFC3339))
	}
	response, err := c.send(ctx, http.MethodGet, inNamespace("/api/v1", namespace, "pods/")+url.PathEscape(pod)+"/log?"+query.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// CronJobs returns the CronJobs of a namespace as text.
func (c *Client) CronJobs(ctx context.Context, namespace string) (string, error) {
	var text json.RawMessage
	err := c.call(ctx, http.MethodGet, inNamespace("/apis/batch/v1", namespace, "cronjobs"), "", nil, &text)
	return string(text), err
}

// PatchCronJob changes a CronJob by a merge patch.
func (c *Client) PatchCronJob(ctx context.Context, namespace, name string, patch []byte) error {
	return c.call(ctx, http.MethodPatch, inNamespace("/apis/batch/v1", namespace, "cronjobs/")+url.PathEscape(name), "application/merge-patch+json", patch, nil)
}

func (c *Client) call(ctx context.Context, method, path, kind string, body []byte, into any) error {
	response, err := c.send(ctx, method, path, kind, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case len(text) > answerMax:
		return fmt.Errorf("%s %s: the answer is longer than %d MiB", method, path, answerMax>>20)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not that of Kubernetes: %w", method, path, err)
	}
	return nil
}

// send makes a request, and returns its answer or the refusal.
func (c *Client) send(ctx context.Context, method, path, kind string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, */*")
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	token := c.token
	if c.tokenFile != "" { // clusters replace it each hour
		text, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(string(text))
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	status := &Status{}
	_ = json.Unmarshal(text, status) // proxies in between answer otherwise
	status.Code = response.StatusCode
	if status.Message == "" {
		status.Message = string(bytes.TrimSpace(text))
	}
	if len(status.Message) > messageMax {
		status.Message = strings.ToValidUTF8(status.Message[:messageMax], "") + "…"
	}
	status.Message = fmt.Sprintf("%s %s: %s: %s", method, c.server+strings.SplitN(path, "?", 2)[0], response.Status, status.Message)
	return nil, status
}
