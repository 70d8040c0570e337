// Package imagetest makes the images of the Dockerfile without Docker: the files that their last stages copy,
// from this machine's HAProxy and a build of our programs. It reads the stages from the Dockerfile itself, and
// runs the commands with which they collect files.
//
// Digests are of a tar archive that the package writes. A library for layers, such as go-containerregistry,
// takes such an archive as its input: it would add a dependency and remove no line.
//
// The Dataplane API is the double, or the program in the variable DATAPLANEAPI.
package imagetest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// An Image is a folder with its files, and the command from its stage.
type Image struct {
	Root            string
	Entrypoint, Cmd []string
	Env             []string
	User            string // UID:GID
	StopSignal      string
	Labels          string
	Base            string
}

// Builder makes images below a folder.
type Builder struct {
	module, dir string
	stages      map[string]*stage
}

// New makes a builder of the images of the module in a folder. Its files are below dir.
func New(tb testing.TB, module, dir string) *Builder {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(module, "Dockerfile"))
	if err != nil {
		tb.Fatal(err)
	}
	stages, err := parse(string(text))
	if err != nil {
		tb.Fatal(err)
	}
	return &Builder{module: module, dir: dir, stages: stages}
}

// Build makes the image of a target.
func (b *Builder) Build(tb testing.TB, target string) Image {
	tb.Helper()
	s := b.stages[target]
	if s == nil {
		tb.Fatalf("the Dockerfile has no stage %s", target)
	}
	image := Image{Root: filepath.Join(b.dir, target), StopSignal: "SIGTERM", Base: s.base}
	var errs []error
	for _, i := range s.instructions {
		var err error
		switch i.name {
		case "COPY":
			err = b.copy(tb, image.Root, i.rest)
		case "ENTRYPOINT":
			image.Entrypoint, err = words(i.rest)
		case "CMD":
			image.Cmd, err = words(i.rest)
		case "ENV":
			image.Env = append(image.Env, i.rest)
		case "USER":
			image.User = i.rest
		case "STOPSIGNAL":
			image.StopSignal = i.rest
		case "LABEL":
			image.Labels += i.rest
		case "ARG":
		default:
			err = errors.New("not known here")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s %s: %w", target, i.name, i.rest, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	return image
}

// copy does a COPY --from=STAGE SOURCE DESTINATION.
func (b *Builder) copy(tb testing.TB, root, rest string) error {
	tb.Helper()
	fields := strings.Fields(rest)
	if len(fields) != 3 || !strings.HasPrefix(fields[0], "--from=") {
		return errors.New("only copies from a stage")
	}
	stage, source, destination := strings.TrimPrefix(fields[0], "--from="), fields[1], filepath.Join(root, fields[2])
	switch {
	case stage == "build" && strings.HasPrefix(source, "/out/"):
		return copyFile(b.program(tb, filepath.Base(source)), destination, 0o755)
	case stage == "build":
		return writeFile(destination, nil, 0o644) // authorities, of which this machine may have none
	case stage == "vendor":
		return b.collect(stage, source, haproxy(tb), "haproxy", destination)
	case stage == "api":
		return b.collect(stage, source, b.api(tb), "dataplaneapi", destination)
	}
	return fmt.Errorf("stage %s is not known here", stage)
}

// collect runs the command with which a stage collects files below a folder, with this machine's program in
// place of the stage's.
func (b *Builder) collect(stage, folder, program, name, destination string) error {
	bin := filepath.Join(b.dir, "bin-of-"+stage)
	if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // others read it
		return err
	}
	if err := os.Symlink(program, filepath.Join(bin, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, i := range b.stages[stage].instructions {
		if i.name != "RUN" {
			continue
		}
		script := strings.ReplaceAll(i.rest, folder, strings.TrimSuffix(destination, "/"))
		if script == i.rest {
			return fmt.Errorf("stage %s collects nothing in %s", stage, folder)
		}
		c := exec.Command("/bin/sh", "-c", "umask 022; "+script) //nolint:noctx // it is short
		c.Env = append(os.Environ(), "PATH="+bin+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

// program returns a program of the module. Programs are built once, as the Dockerfile does: the agent that
// inspects requests without a file system.
func (b *Builder) program(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(b.dir, "out", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	which := []string{"./cmd/bootstrap", "./cmd/compiler", "./cmd/hapsnap", "./cmd/pusher", "./internal/testing/dataplanetest/dataplaneapi"}
	if name == "waf" {
		which = []string{"-tags", "no_fs_access", "./cmd/waf"}
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Dir(path) + "/"}, which...)
	build := exec.CommandContext(tb.Context(), "go", args...)
	build.Dir = b.module
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the programs: %v\n%s", err, out)
	}
	return path
}

// api is the double, or a real one.
func (b *Builder) api(tb testing.TB) string {
	tb.Helper()
	if path, reason := dataplanetest.Real(haproxy(tb)); reason == "" {
		tb.Log("with the Dataplane API", path)
		return path
	}
	return b.program(tb, "dataplaneapi")
}

func haproxy(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func copyFile(source, destination string, mode fs.FileMode) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return writeFile(destination, content, mode)
}

func writeFile(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as in an image
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask is
}

// A stage is a part of the Dockerfile, from one FROM to the next.
type stage struct {
	base         string
	instructions []instruction
}

type instruction struct{ name, rest string }

var from = regexp.MustCompile(`^(?:--\S+ )?(\S+) AS (\S+)$`)

// parse reads stages by their names.
func parse(text string) (map[string]*stage, error) {
	stages := map[string]*stage{}
	var current *stage
	for _, line := range logicalLines(text) {
		name, rest, _ := strings.Cut(line, " ")
		if name != "FROM" {
			if current != nil {
				current.instructions = append(current.instructions, instruction{name, strings.TrimSpace(rest)})
			}
			continue
		}
		found := from.FindStringSubmatch(rest)
		if found == nil {
			return nil, fmt.Errorf("FROM %s: want a stage with a name", rest)
		}
		current = &stage{base: found[1]}
		stages[found[2]] = current
	}
	return stages, nil
}

// logicalLines joins continued lines, and drops comments.
func logicalLines(text string) []string {
	var out []string
	var line strings.Builder
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "#") || l == "" {
			continue
		}
		more := strings.HasSuffix(l, `\`)
		line.WriteString(strings.TrimSuffix(l, `\`))
		line.WriteByte(' ')
		if !more {
			out = append(out, strings.TrimSpace(line.String()))
			line.Reset()
		}
	}
	return out
}

// words is the JSON form of ENTRYPOINT and CMD. Their other form needs a shell.
func words(text string) ([]string, error) {
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("%s: only the form that needs no shell: %w", text, err)
	}
	return out, nil
}

// Digest returns the digest of the image: of a layer with all its files, and of its configuration. Files belong
// to root, and have no times, so that two builds of the same source have the same digest.
func (i Image) Digest() (string, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := filepath.WalkDir(i.Root, func(path string, d fs.DirEntry, err error) error { // in lexical order
		if err != nil || path == i.Root {
			return err
		}
		return i.add(w, path, d)
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return "", fmt.Errorf("make a layer: %w", err)
	}
	i.Root = ""
	config, err := json.Marshal(i)
	sum := sha256.New()
	sum.Write(layer.Bytes())
	sum.Write(config)
	return hex.EncodeToString(sum.Sum(nil)), err
}

func (i Image) add(w *tar.Writer, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(i.Root, path)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Format: tar.FormatPAX}
	var content []byte
	switch {
	case d.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case d.Type()&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		header.Linkname, err = os.Readlink(path)
	default:
		header.Typeflag = tar.TypeReg
		content, err = os.ReadFile(path)
		header.Size = int64(len(content))
	}
	if err != nil {
		return err
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
