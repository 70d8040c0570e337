package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is a piece of a page between two fences.
type block struct {
	page, info string
	line       int // of the fence
	text       string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// blocksOf returns the blocks of a page, and the page without them.
func blocksOf(page, text string) (blocks []block, prose string) {
	var open *block
	var rest strings.Builder
	indent := ""
	for n, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case strings.HasPrefix(trimmed, "```") && open == nil:
			indent = line[:len(line)-len(trimmed)]
			open = &block{page: page, line: n + 1, info: strings.TrimPrefix(trimmed, "```")}
		case trimmed == "```":
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		default:
			rest.WriteString(line)
		}
		rest.WriteString("\n")
	}
	return blocks, rest.String()
}

// outside are the marks of blocks whose commands need what no test has, and what that is.
// Such commands are held against the verbs and flags of the programs only.
var outside = map[string]string{
	"cluster":  "a cluster",
	"forge":    "a git server, or a program that is not ours",
	"fleet":    "instances of one's own, or a rollout that is under way",
	"checkout": "a checkout, in which targets of the Makefile run",
}

// commands returns the lines of a block that a person types, with what stands below each.
func (b block) commands() (typed, printed []string) {
	if !strings.HasPrefix(b.info, "console") {
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSpace(line); line != "" {
				typed, printed = append(typed, line), append(printed, "")
			}
		}
		return typed, printed
	}
	for line := range strings.Lines(b.text) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
			typed, printed = append(typed, command), append(printed, "")
		} else if len(printed) > 0 {
			printed[len(printed)-1] += line
		}
	}
	return typed, printed
}

var (
	marked   = regexp.MustCompile(`^(sh|console)( [a-z]+)?$`)
	indented = regexp.MustCompile(`(?m)^(?: {4,}|\t)(?:\$ |compiler |pusher |hapsnap |waf |kubectl |git |make )`)
	span     = regexp.MustCompile("`((?:compiler|pusher|hapsnap|waf) [^`]+)`")
	target   = regexp.MustCompile(`(?m)^([a-z0-9.-]+):`)
)

// TestCommandsAreThere compares every command on a page with the programs. It also finds what a shell would
// read differently than it looks.
func TestCommandsAreThere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, found := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, found[1])
	}
	for page, text := range pages(t) {
		if page == "CHANGELOG.md" {
			continue
		}
		blocks, prose := blocksOf(page, text)
		for _, b := range blocks {
			if err := checkBlock(b, targets); err != nil {
				t.Errorf("%s: %v", b, err)
			}
		}
		if at := indented.FindStringIndex(prose); at != nil {
			t.Errorf("%s:%d: a command stands in no block", page, strings.Count(prose[:at[0]], "\n")+1)
		}
		for _, found := range span.FindAllStringSubmatchIndex(prose, -1) {
			command := strings.Fields(prose[found[2]:found[3]])
			if err := checkCommand(command, false); err != nil {
				t.Errorf("%s:%d: %v", page, strings.Count(prose[:found[0]], "\n")+1, err)
			}
		}
	}
}

func checkBlock(b block, targets []string) error {
	shell := marked.MatchString(b.info)
	if mark := strings.Fields(b.info); shell && len(mark) == 2 && outside[mark[1]] == "" {
		return fmt.Errorf("the mark %s is not known", mark[1])
	}
	typed, _ := b.commands()
	for _, line := range typed {
		if !shell {
			if err := checkShown(b.info, line); err != nil {
				return err
			}
			continue
		}
		commands, err := words(line)
		if err != nil {
			return err
		}
		for _, command := range commands {
			switch {
			case programOf(command) != "":
				err = checkCommand(command, true)
			case command[0] == "make" && len(command) > 1 && !slices.Contains(targets, command[1]):
				err = fmt.Errorf("the Makefile has no target %s", command[1])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkShown checks a line of a block that is not for a shell: a transcript may show commands too, whose quotes
// have to be right.
func checkShown(info, line string) error {
	line, isCommand := strings.CutPrefix(line, "$ ")
	first, _, _ := strings.Cut(line, " ")
	if info == "" && (isCommand || slices.Contains([]string{"compiler", "pusher", "hapsnap", "kubectl", "git", "make"}, first)) {
		return fmt.Errorf("a command stands in a block that is not marked sh or console: %s", line)
	}
	if !isCommand {
		return nil
	}
	line, _, _ = strings.Cut(line, "    #")
	_, err := words(line)
	return err
}

// TestWords shows which mistakes are found.
func TestWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`compiler render -o git+file:///srv/edge.git?branch=edge`:   "is not quoted",
		`compiler render -o 'git+file:///srv/edge.git?branch=edge'`: "",
		`compiler render -o "git+file://$PWD/e.git?branch=e"`:       "",
		`ls *.cfg`:                        "is not quoted",
		`kubectl get -o jsonpath={.a[0]}`: "is not quoted",
		`pusher unpin --store x # later`:  "a comment",
		`compiler render -f 'manifests`:   "left open",
	} {
		if _, err := words(line); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for line, want := range map[string]string{
		"pusher pin r1 --store x":           "",
		"pusher pinn r1 --store x":          "has no verb pinn",
		"pusher pin --store x":              "arg",
		"pusher pin r1":                     "needs --store",
		"pusher pin r1 --store x --because": "unknown flag",
	} {
		if err := checkCommand(strings.Fields(line), true); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
