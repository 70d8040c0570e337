package testscripts

import (
	"context"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// changeCluster starts the script's API server, or does something to it. Stories
// without it start none.
func changeCluster(w *world, ts *testscript.TestScript, args []string) error {
	verb := strings.Join(args[:min(len(args), 1)], "")
	switch {
	case verb == "start" && len(args) == 1 && w.cluster == nil:
		return startCluster(w, ts)
	case w.cluster == nil:
		return errUsage
	case verb == "account" && len(args) == 3:
		return writeAccount(w, ts, args[1], args[2])
	}
	change, ok := map[string]func() error{
		"stop": w.cluster.StopAPI, "resume": w.cluster.ResumeAPI,
		"expire": func() error { return w.cluster.ExpireAPI(context.Background()) },
	}[verb]
	if !ok || len(args) != 1 {
		return errUsage
	}
	return change()
}

func startCluster(w *world, ts *testscript.TestScript) error {
	server, err := kubetest.New()
	if err != nil {
		return err
	}
	w.cluster = server
	ts.Setenv("KUBECONFIG", server.Kubeconfig())
	ts.Setenv("WEBHOOK_CLIENT_CA", server.WebhookClientCA())
	return nil
}

// writeAccount writes a kubeconfig for a ServiceAccount.
func writeAccount(w *world, ts *testscript.TestScript, account, file string) error {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok {
		return errUsage
	}
	content, err := w.cluster.ServiceAccountConfig(context.Background(), namespace, name)
	if err != nil {
		return err
	}
	return replaceFile(ts.MkAbs(file), content)
}
