package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

// A repository on this host is served by the git that is installed. The store starts it itself where that makes the
// cost of a publish independent of the number of tags: git then lists only some references, a push looks only at the
// references that it changes and at the branches, and the tags are packed now and then. For other repositories the
// server decides what a push costs.

// packEvery is after how many revisions a writer packs the tags of a repository on this host. Git reads a tag that is
// not packed from a file of its own, for each listing and each push.
const packEvery = 64

// mostHidden is how many tags a push may change for the others to be hidden from it. Their names are part of a command
// line.
const mostHidden = 16

// commandEnds is how long git may take to end after it was asked to.
const commandEnds = 5 * time.Second

// isLocal reports whether the repository is on this host.
func (w *wire) isLocal() bool { return w.endpoint.Protocol == "file" }

// git returns a command. When ctx ends, git gets the signal at which it removes its lock files.
func (w *wire) git(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandEnds
	return cmd
}

// Some returns the references whose names begin with one of the prefixes, if the repository can be asked for them
// (version 2 of the protocol, ls-refs).
func (w *wire) Some(ctx context.Context, prefixes ...string) (map[string]plumbing.Hash, bool) {
	if !w.isLocal() {
		return nil, false
	}
	found, err := within(ctx, w, func(ctx context.Context) (map[string]plumbing.Hash, error) {
		cmd := w.git(ctx, "upload-pack", w.endpoint.Path)
		cmd.Env = append(os.Environ(), "GIT_PROTOCOL=version=2")
		cmd.Stdin = bytes.NewReader(lsRefs(prefixes))
		out, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		return readLsRefs(out)
	})
	return found, err == nil
}

// lsRefs returns the request for references.
func lsRefs(prefixes []string) []byte {
	var b bytes.Buffer
	line := func(text string) { fmt.Fprintf(&b, "%04x%s", len(text)+4, text) }
	line("command=ls-refs\n")
	b.WriteString("0001") // a delimiter
	for _, prefix := range prefixes {
		line("ref-prefix " + prefix + "\n")
	}
	b.WriteString("0000") // ends the command, then the session
	b.WriteString("0000")
	return b.Bytes()
}

// readLsRefs reads what the server can do, and then the references.
func readLsRefs(answer []byte) (map[string]plumbing.Hash, error) {
	lines := pktline.NewScanner(bytes.NewReader(answer))
	if !lines.Scan() || string(lines.Bytes()) != "version 2\n" {
		return nil, errors.New("the repository does not speak version 2 of the protocol")
	}
	for lines.Scan() && len(lines.Bytes()) > 0 { // up to a flush
	}
	found := map[string]plumbing.Hash{}
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			return found, nil
		}
		hash, name, ok := strings.Cut(strings.TrimSuffix(string(lines.Bytes()), "\n"), " ")
		if name, _, _ = strings.Cut(name, " "); !ok || !plumbing.IsHash(hash) || name == "" {
			return nil, fmt.Errorf("the repository lists %q", lines.Bytes())
		}
		found[name] = plumbing.NewHash(hash)
	}
	return nil, cmpErr(lines.Err(), io.ErrUnexpectedEOF) // cut off
}

// notOlder returns prefixes of the names of all tags in a folder whose revision is not less than the given one. Other
// tags may have them too.
func notOlder(folder string, revision uint64) []string {
	digits := fmt.Sprintf("%06d", revision)
	if digits[0] != '0' { // longer numbers may begin with any digit
		return []string{folder + "r"}
	}
	out := []string{folder + "r" + digits + "-"}
	for i := range digits {
		for next := digits[i] + 1; next <= '9'; next++ {
			out = append(out, folder+"r"+digits[:i]+string(next))
		}
	}
	return out
}

// Pack packs the tags, which changes none of them.
func (w *wire) Pack(ctx context.Context) error {
	if !w.isLocal() {
		return nil
	}
	_, err := within(ctx, w, func(ctx context.Context) (struct{}, error) {
		cmd := w.git(ctx, "-C", w.endpoint.Path, "pack-refs")
		cmd.Env = slices.DeleteFunc(os.Environ(), isAboutRepository)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		}
		return struct{}{}, err
	})
	return err
}

// isAboutRepository reports whether a variable names a repository for git, as in the hooks of one.
func isAboutRepository(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE"}, name)
}

// hiding returns options of git that hide all tags of the store from a push but those that it changes. Git then
// neither lists them nor looks at their commits. It returns none if the push changes many.
func hiding(updates []update) []string {
	var folders, changed []string
	for _, u := range updates {
		if u.name.IsTag() {
			folders = append(folders, path.Dir(u.name.String()))
			changed = append(changed, u.name.String())
		}
	}
	if len(changed) == 0 || len(changed) > mostHidden {
		return nil
	}
	slices.Sort(folders)
	// While git checks a push, the repository is an alternate of the place where it keeps what was sent.
	out := []string{"-c", "core.alternateRefsPrefixes=refs/heads/"}
	for _, folder := range slices.Compact(folders) {
		out = append(out, "-c", "receive.hideRefs="+folder)
	}
	for _, name := range changed {
		out = append(out, "-c", "receive.hideRefs=!"+name)
	}
	return out
}

// localPush is a session with a git that receives a push.
type localPush struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	said  bytes.Buffer
	ended bool
}

// pushLocally starts a session in which the tags that the updates do not change are hidden.
func (w *wire) pushLocally(ctx context.Context, updates []update) (_ *localPush, err error) {
	p := &localPush{cmd: w.git(ctx, append(hiding(updates), "receive-pack", w.endpoint.Path)...)}
	p.cmd.Stderr = &p.said
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// AdvertisedReferencesContext implements [pushing].
func (p *localPush) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	advertised := packp.NewAdvRefs()
	if err := advertised.Decode(p.out); err != nil && !errors.Is(err, packp.ErrEmptyAdvRefs) {
		return nil, p.explain(err)
	}
	transport.FilterUnsupportedCapabilities(advertised.Capabilities)
	return advertised, nil
}

// ReceivePack implements [pushing].
func (p *localPush) ReceivePack(_ context.Context, request *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	if err := cmpErr(request.Encode(p.in), p.in.Close()); err != nil {
		return nil, p.explain(err)
	}
	if !request.Capabilities.Supports(capability.ReportStatus) {
		return nil, errNoReport
	}
	report := packp.NewReportStatus()
	if err := report.Decode(demultiplexed(request.Capabilities, p.out, request.Progress)); err != nil {
		return nil, p.explain(err)
	}
	// Git would be killed by a write that nobody reads, and leave what was sent on the disk.
	_, _ = io.Copy(io.Discard, p.out)
	return report, report.Error()
}

// explain ends git, and adds what it wrote to stderr.
func (p *localPush) explain(err error) error {
	_ = p.Close() // git says why
	if said := bytes.TrimSpace(p.said.Bytes()); len(said) > 0 {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// Close waits for git to end. Its exit code does not matter: the report says what became of a push.
func (p *localPush) Close() error {
	if p.ended {
		return nil
	}
	p.ended = true
	_ = p.in.Close()
	_ = p.out.Close() // git has nothing more to say that matters
	err := p.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return nil
	}
	return err
}
