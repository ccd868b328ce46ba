package service

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/belfry-cron/belfry/client"
)

// forgotten panics at any call: every method of a nil interface does.
type forgotten struct{ Store }

// No face can forget to say who calls: without a caller every method refuses before it asks
// the store.
func TestEveryMethodRefusesACallerWithoutRights(t *testing.T) {
	open := map[string]bool{
		"Nodes.Ready":     true, // a probe, which tells nothing
		"Reports.Ping":    true, // the key in the request says who calls
		"Badges.Show":     true, // the secret in the link does
		"Callbacks.Check": true, // the secret does
		"Hooks.Call":      true, // the signature does
		"Hooks.Counts":    true, // numbers for metrics
		"Requests.Run":    true, // each request names its caller
		"Runs.KeptFor":    true, // a setting
		"Callbacks.Take":  true, // and so does the secret of the handover
	}
	s, err := New(Config{Store: forgotten{}, Tokens: noTokens{}})
	if err != nil {
		t.Fatal(err)
	}
	methods := 0
	topics := reflect.ValueOf(s).Elem()
	for i := range topics.NumField() {
		topic, name := topics.Field(i), topics.Type().Field(i).Name
		for j := range topic.NumMethod() {
			method := name + "." + topic.Type().Method(j).Name
			if open[method] {
				continue
			}
			methods++
			if err := refusal(topic.Method(j)); !isType(err, client.TypeForbidden) {
				t.Errorf("%s with no caller: %v", method, err)
			}
		}
	}
	if methods < 30 {
		t.Errorf("only %d methods were found", methods)
	}
}

// refusal calls a method with zero values and returns its error.
func refusal(method reflect.Value) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.New("it went on to the store")
		}
	}()
	arguments := []reflect.Value{reflect.ValueOf(context.Background())}
	for i := 1; i < method.Type().NumIn(); i++ {
		arguments = append(arguments, reflect.Zero(method.Type().In(i)))
	}
	results := method.Call(arguments)
	err, _ = results[len(results)-1].Interface().(error)
	return err
}

type noTokens struct{ Tokens }
