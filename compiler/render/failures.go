package render

import (
	"bytes"
	"errors"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// maxFailures is the number of objects at which one template may fail before rendering gives it up.
const maxFailures = 100

// execute returns what a template writes, with its marks. If the template fails, execute records why
// and returns nothing. If it fails at an object that it reads, it is executed again without that
// object, so that one rendering finds all such objects.
func (r *rendering) execute(i int, data TemplateData) []byte {
	for range maxFailures {
		out, err := r.try(i, data)
		if err == nil {
			return out
		}
		here := r.newAssembly(true)
		here.sets = r.sets
		fault := Fault{Message: messageOf(err), Origin: here.stopped(out, data.origins), Refused: isRefusal(err)}
		if !fault.Refused {
			fault.Origin = r.placeIn(err, fault.Origin)
		}
		if value, ok := errors.AsType[*ValueError](err); ok {
			fault.Message, fault.Hint, fault.Value = value.Error(), value.Hint, value.Value
		}
		if wrong, ok := errors.AsType[mistake](err); ok {
			fault.Hint = wrong.hint
		}
		if field, ok := missingField(err); ok {
			fault.Message, fault.Field = field+" is missing", field
		}
		culprit, ok := onlyObject(fault)
		if data.hidden[culprit] {
			return nil
		}
		r.faults = append(r.faults, faultOf{r.template, fault})
		if !ok || !data.objects().hasContent(culprit) {
			return nil
		}
		if data.hidden = maps.Clone(data.hidden); data.hidden == nil {
			data.hidden = map[diag.Object]bool{}
		}
		data.hidden[culprit] = true
	}
	return nil
}

// onlyObject returns the object that a fault blames, if it is just one.
func onlyObject(f Fault) (diag.Object, bool) {
	if len(f.Origin.Objects) != 1 {
		return diag.Object{}, false
	}
	return f.Origin.Objects[0].Object, true
}

// missingForm matches the error of text/template for a field that is missing in the content of an
// object.
var missingForm = regexp.MustCompile(`at <\S*\.Content\.(\S+)>: map has no entry for key "(.+)"$`)

// missingField returns the path of a field that a template reads and an object does not have.
func missingField(err error) (string, bool) {
	m := missingForm.FindStringSubmatch(err.Error())
	if m == nil {
		return "", false
	}
	before, _, ok := strings.Cut("."+m[1]+".", "."+m[2]+".")
	return strings.TrimPrefix(before+"."+m[2], "."), ok
}

// placeIn returns the place that an error names, or where the execution stopped.
func (r *rendering) placeIn(err error, stopped LineOrigin) LineOrigin {
	for _, file := range r.set.files {
		if line, _, _ := splitError(file.Name, err); line > 0 {
			return LineOrigin{Template: file.Path, Line: line, Objects: stopped.Objects}
		}
	}
	return stopped
}

// messageOf removes what text/template writes around the cause of an error.
func messageOf(err error) string {
	var exec template.ExecError
	if errors.As(err, &exec) {
		if cause := errors.Unwrap(exec.Err); cause != nil {
			return cause.Error()
		}
	}
	text := err.Error()
	if m := placeOf.FindStringSubmatch(text); m != nil {
		text = m[4]
	}
	return text
}

// The output of a template contains marks, which give the origin of the bytes after them. A mark is a NUL, a letter,
// numbers separated by commas, and a semicolon. Nobody can forge marks: no text of a template and no value contains a NUL.
const (
	markLine  = 'L' // file, line: a line of a template
	markEnter = 'E' // depth, set: the objects of an element of a range
	markLeave = 'X' // depth: the end of a range
	markCall  = 'C' // a template is called
	markBack  = 'B' // and has ended
)

// appendMark writes a mark.
func appendMark(out []byte, kind byte, numbers ...int) []byte {
	out = append(out, 0, kind)
	for i, n := range numbers {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(n), 10)
	}
	return append(out, ';')
}

// The functions that the marker calls. They are bound for each rendering.
const (
	funcCheck = "hapsnap_check" // VALUE: the value as text, or an error
	funcEnter = "hapsnap_enter" // DEPTH VALUE: the mark for an element of a range
)

// marker rewrites a parse tree so that its output carries marks, and so that
// every value that it interpolates is checked.
type marker struct {
	file int
	text string // of the file
}

// list rewrites a list of nodes; depth is how many ranges it is in.
func (m marker) list(list *parse.ListNode, depth int) {
	if list == nil {
		return
	}
	var out []parse.Node
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			n.Text = m.markText(n)
			out = append(out, n)
		case *parse.ActionNode:
			out = append(out, m.action(n)...)
		case *parse.TemplateNode:
			out = append(out, m.mark(n.Pos, markCall), n, m.mark(n.Pos, markBack))
		case *parse.RangeNode:
			m.list(n.List, depth+1)
			m.list(n.ElseList, depth)
			n.List.Nodes = append([]parse.Node{m.enter(n.Pos, depth)}, n.List.Nodes...)
			out = append(out, n, m.mark(n.Pos, markLeave, depth))
		default:
			m.branches(n, depth)
			out = append(out, n)
		}
	}
	list.Nodes = out
}

// branches rewrites what is in an if or a with.
func (m marker) branches(n parse.Node, depth int) {
	switch n := n.(type) {
	case *parse.IfNode:
		m.list(n.List, depth)
		m.list(n.ElseList, depth)
	case *parse.WithNode:
		m.list(n.List, depth)
		m.list(n.ElseList, depth)
	}
}

// markText puts a mark before each line of a text.
func (m marker) markText(n *parse.TextNode) []byte {
	line := 1 + strings.Count(m.text[:n.Pos], "\n")
	var out []byte
	for piece := range bytes.Lines(n.Text) {
		if len(bytes.TrimSpace(piece)) > 0 {
			out = appendMark(out, markLine, m.file, line)
		}
		out = append(out, piece...)
		line++
	}
	return out
}

// mark returns a node that writes a mark.
func (m marker) mark(pos parse.Pos, kind byte, numbers ...int) parse.Node {
	return &parse.TextNode{NodeType: parse.NodeText, Pos: pos, Text: appendMark(nil, kind, numbers...)}
}

// action puts the check behind the pipeline of an action that writes its
// value, and a mark before it.
func (m marker) action(n *parse.ActionNode) []parse.Node {
	if len(n.Pipe.Decl) > 0 {
		return []parse.Node{n}
	}
	check := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{identifier(funcCheck, n.Pos)}}
	n.Pipe.Cmds = append(n.Pipe.Cmds, check)
	return []parse.Node{m.mark(n.Pos, markLine, m.file, n.Line), n}
}

// enter returns an action that writes the mark for the element of a range.
func (m marker) enter(pos parse.Pos, depth int) parse.Node {
	number := &parse.NumberNode{NodeType: parse.NodeNumber, Pos: pos, IsInt: true, Int64: int64(depth), Text: strconv.Itoa(depth)}
	dot := &parse.DotNode{NodeType: parse.NodeDot, Pos: pos}
	command := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{identifier(funcEnter, pos), number, dot}}
	return &parse.ActionNode{
		NodeType: parse.NodeAction, Pos: pos,
		Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{command}},
	}
}

func identifier(name string, pos parse.Pos) *parse.IdentifierNode {
	return parse.NewIdentifier(name).SetTree(nil).SetPos(pos)
}
