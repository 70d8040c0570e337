package testscripts

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// changeCluster starts the script's API server, or changes it. Stories without it start none.
func changeCluster(w *world, ts *testscript.TestScript, args []string) error {
	verb := strings.Join(args[:min(len(args), 1)], "")
	switch {
	case verb == "start" && len(args) == 1 && w.cluster == nil:
		return startCluster(w, ts)
	case w.cluster == nil:
		return errUsage
	case verb == "account" && len(args) == 3:
		return writeAccount(w, ts, args[1], args[2])
	case verb == "proxy" && len(args) == 2 && w.proxy == nil:
		return startProxy(w, ts, args[1])
	case verb == "foreign" && len(args) == 2 && w.proxy != nil:
		answer, ok := kubetest.ForeignAnswers()[args[1]]
		if !ok && args[1] != "none" {
			return errUsage
		}
		w.proxy.Answers(answer)
		w.proxy.Interrupt()
		return nil
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

// startProxy starts a proxy before the API server, and writes a kubeconfig that leads to it.
func startProxy(w *world, ts *testscript.TestScript, file string) error {
	var err error
	if w.proxy, err = w.cluster.NewProxy(); err != nil {
		return err
	}
	content, err := os.ReadFile(w.proxy.Kubeconfig())
	if err != nil {
		return err
	}
	return replaceFile(ts.MkAbs(file), content)
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

// changing are the commands of kubectl with which scripts change roles and bindings.
var changing = []string{"apply", "create", "delete", "patch", "replace"}

// runKubectl runs kubectl. If that changed permissions, they hold when it returns. kubectl prints each changed
// object with the group of its kind.
func runKubectl(w *world, ts *testscript.TestScript, args []string) error {
	if w.cluster == nil || len(args) == 0 {
		return errUsage
	}
	if err := ts.Exec("kubectl", args...); err != nil {
		return err
	}
	if !slices.Contains(changing, args[0]) || !strings.Contains(ts.ReadFile("stdout"), "."+rbacv1.GroupName+"/") {
		return nil
	}
	return w.cluster.AwaitRights(context.Background())
}

// Stories write with kubectl only through this command, which waits until permissions hold.
func TestStoriesWaitForRights(t *testing.T) {
	t.Parallel()
	stories, err := filepath.Glob("*.txtar")
	if err != nil || len(stories) == 0 {
		t.Fatal("no stories:", err)
	}
	past := regexp.MustCompile(`(?m)^(! )?exec kubectl (` + strings.Join(changing, "|") + `) .*$`)
	for _, story := range stories {
		content, err := os.ReadFile(story)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range past.FindAllString(string(content), -1) {
			t.Errorf("%s: %s\n\thint: write kubectl without exec", story, line)
		}
	}
}
