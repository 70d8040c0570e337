package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/notify"
)

// hookURL reads the address of a webhook from a file. It is not said in errors, for
// it often holds a token.
func hookURL(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the webhook's URL: %w", err)
	}
	address := strings.TrimSpace(string(data))
	if u, err := url.Parse(address); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", errors.New(file + " holds no http or https URL")
	}
	return address, nil
}

// notifying starts to send notices to the webhook, if there is one, and returns where
// they go, and a function that sends what is left.
func notifying(ctx context.Context, file string, log *slog.Logger) (send func(notify.Notice), wait func(), err error) {
	if file == "" {
		return nil, func() {}, nil
	}
	if _, err := hookURL(file); err != nil {
		return nil, nil, fmt.Errorf("--notify-url-file: %w", err)
	}
	sender := notify.New(func() (string, error) { return hookURL(file) }, log)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		sender.Run(ctx)
	}()
	return sender.Send, func() {
		stop()
		<-done
	}, nil
}
