package gitstore

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// repository is a bare repository. The installed git serves and changes it.
type repository struct{ path, cache string }

// newRepository makes a repository with configuration in the form key=value.
func newRepository(t *testing.T, config ...string) repository {
	t.Helper()
	dir := t.TempDir()
	r := repository{path: filepath.Join(dir, "edge.git"), cache: filepath.Join(dir, "cache")}
	runGit(t, dir, nil, "init", "--quiet", "--bare", "--initial-branch=edge", r.path)
	// A task that a push starts in the background would outlive the test.
	for _, pair := range append([]string{"gc.auto=0", "receive.autogc=false"}, config...) {
		key, value, _ := strings.Cut(pair, "=")
		r.git(t, "config", key, value)
	}
	return r
}

// open opens another Store on the repository.
func (r repository) open(t *testing.T, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{URL: "file://" + r.path, Branch: "edge", CacheDir: r.cache}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// git runs git in the repository and returns what it prints, trimmed.
func (r repository) git(t *testing.T, args ...string) string {
	t.Helper()
	return runGit(t, r.path, nil, args...)
}

// runGit runs git with a fixed author and time, and with only the repository's configuration.
func runGit(t *testing.T, dir string, stdin []byte, args ...string) string {
	t.Helper()
	return runGitEnv(t, dir, nil, stdin, args...)
}

func runGitEnv(t *testing.T, dir string, env []string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_PAGER=cat",
		"GIT_AUTHOR_NAME=somebody", "GIT_AUTHOR_EMAIL=some@body", "GIT_AUTHOR_DATE=2026-03-01T12:00:00Z",
		"GIT_COMMITTER_NAME=somebody", "GIT_COMMITTER_EMAIL=some@body", "GIT_COMMITTER_DATE=2026-03-01T12:00:00Z")
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// removed is the content with which commitFile removes a file.
const removed = "\x00"

// commitFile commits a file on top of a revision, which may be none, as people do. It returns the commit.
func (r repository) commitFile(t *testing.T, parent, path, content string) string {
	t.Helper()
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")}
	git := func(stdin []byte, args ...string) string { return runGitEnv(t, r.path, index, stdin, args...) }
	commit := []string{"commit-tree", "-m", "by hand"}
	if parent != "" {
		git(nil, "read-tree", parent)
		commit = append(commit, "-p", parent)
	}
	if content == removed {
		git([]byte("0 "+strings.Repeat("0", 40)+"\t"+path+"\n"), "update-index", "--index-info")
	} else {
		blob := git([]byte(content), "hash-object", "-w", "--stdin")
		git(nil, "update-index", "--add", "--cacheinfo", "100644,"+blob+","+path)
	}
	return git(nil, append(commit, git(nil, "write-tree"))...)
}

// tamper changes a file of a snapshot, in the commit of its tag and branch.
func (r repository) tamper(t *testing.T, id snapshots.ID, path string) {
	t.Helper()
	tag := "refs/tags/edge/" + id.String()
	old := r.git(t, "rev-parse", tag)
	content := r.git(t, "cat-file", "blob", old+":"+path)
	tampered := r.commitFile(t, old, path, content+"\ntampered\n")
	r.git(t, "update-ref", tag, tampered)
	if r.git(t, "rev-parse", "refs/heads/edge") == old {
		r.git(t, "update-ref", "refs/heads/edge", tampered)
	}
}
