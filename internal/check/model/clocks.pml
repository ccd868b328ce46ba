/* The clock that nodes agree on over a store without one (etcd): package nodeclock, and decision 0062. A clock is
 * right (0) or was set wrong (1); how far does not matter, only that it is more than a second. Leads against
 * the boot clock are the clocks as they were published. Each atomic block comes at any time or never, so
 * renewals, acknowledgements and watches may be late.
 *
 * BREAK names a fault. Without one no assertion fails. */

#ifndef NODES
#define NODES 3
#endif
#define CONFIRMATIONS 2
#define NUMBERS 9 /* of first renewals, the latest */

/* The faults. */
#define COUNTS_AT_ONCE 1 /* a clock that was set counts before it is confirmed */
#define WALL_LEADS 2     /* leads are kept against the wall clock, so that a step moves them all */
#define AHEAD_WINS 3     /* of clocks that differ the one ahead counts, without a majority */
#define KEEPS_AGE 4      /* a clock that was set is as old as before */
#define WORKS_OFF 5      /* a node works by its own clock though the shared one differs */

byte BREAK;
byte STEPS;  /* of clocks, in all */
byte DEATHS; /* of nodes, in all */
c_decl {
	static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
}

/* What a renewal says. The number is the order of the revision since which the clock is undisturbed. */
typedef Vote { bool counts; byte clock, since }
Vote board[NODES]; /* the latest renewals, in the store */

typedef Node {
	bool down, unsure, off, continued;
	byte clock, seen, since;
	byte shared;             /* the clock that all should have */
	bool asked, askedUnsure; /* a renewal without an answer yet */
	byte askedSince;
	Vote heard[NODES]
}
Node node[NODES];
byte steps, deaths, wrong, numbers;
byte victim; /* of two nodes the only one whose clock is set, plus 1 */

#define USABLE(n) (!node[n].off && !(node[n].continued && node[n].unsure) || BREAK == WORKS_OFF)
#define WORKS_BY(n) (BREAK == WORKS_OFF -> node[n].clock : node[n].shared)

hidden byte k, right, set, eldest, age;

inline vote(clock_, since_) {
	if :: (clock_) == 0 -> right++ :: else -> set++ fi;
	if :: (since_) > 0 && (age == 0 || (since_) < age) -> age = since_; eldest = clock_ :: age == 0 && (since_) == 0 && right + set == 1 -> eldest = clock_ :: else fi
}

/* The majority, or else the clock that is undisturbed for longest. */
inline derive(n) {
	right = 0; set = 0; eldest = 0; age = 0; k = 0;
	do
	:: k < NODES ->
		if
		:: k == n && !node[n].unsure -> vote(node[n].clock, node[n].since)
		:: k != n && node[n].heard[k].counts -> vote(node[n].heard[k].clock, node[n].heard[k].since)
		:: else
		fi;
		k++
	:: else -> break
	od;
	node[n].continued = (right + set == 0);
	if
	:: node[n].continued
	:: !node[n].continued && right > set -> node[n].shared = (BREAK == AHEAD_WINS && set > 0 -> 1 : 0)
	:: !node[n].continued && right < set -> node[n].shared = 1
	:: !node[n].continued && right == set -> node[n].shared = (BREAK == AHEAD_WINS -> 1 : eldest)
	fi;
	node[n].off = (node[n].continued -> node[n].unsure : node[n].clock != node[n].shared);
	if :: node[n].unsure && !node[n].off -> node[n].unsure = false; node[n].seen = 0 :: else fi;
	right = 0; set = 0; eldest = 0; age = 0; k = 0
}

proctype member(byte n) {
	byte m;
	do
	/* The clock is set, which the node notices at once. */
	:: atomic { !node[n].down && steps < STEPS && (node[n].clock == 1 || wrong == 0) && (NODES > 2 || victim == 0 || victim == n + 1) ->
		steps++; victim = (NODES > 2 -> 0 : n + 1);
		node[n].clock = 1 - node[n].clock;
		wrong = (node[n].clock == 1 -> wrong + 1 : wrong - 1);
		if :: BREAK == WALL_LEADS -> m = 0; do :: m < NODES -> node[n].heard[m].clock = node[n].clock; m++ :: else -> break od; m = 0 :: else fi;
		if :: BREAK != COUNTS_AT_ONCE -> node[n].unsure = true; node[n].seen = 0 :: else fi;
		if :: BREAK != KEEPS_AGE -> node[n].since = 0 :: else fi;
		derive(n) }
	/* A renewal, its answer, and the loss of the answer. */
	:: atomic { !node[n].down && !node[n].asked && (node[n].since > 0 || numbers < NUMBERS) ->
		if :: node[n].since == 0 -> numbers++; node[n].askedSince = numbers :: else -> node[n].askedSince = node[n].since fi;
		node[n].asked = true; node[n].askedUnsure = node[n].unsure;
		board[n].counts = !node[n].unsure; board[n].clock = node[n].clock; board[n].since = node[n].askedSince }
	:: atomic { !node[n].down && node[n].asked ->
		if
		:: node[n].unsure && node[n].askedUnsure ->
			if :: BREAK != KEEPS_AGE -> node[n].since = node[n].askedSince :: else fi;
			node[n].seen++;
			if :: node[n].seen >= CONFIRMATIONS -> node[n].unsure = false; node[n].seen = 0 :: else fi
		:: node[n].unsure && !node[n].askedUnsure /* it was made before the step */
		:: !node[n].unsure && node[n].since == 0 -> node[n].since = node[n].askedSince
		:: else
		fi;
		node[n].asked = false; node[n].askedUnsure = false; node[n].askedSince = 0;
		derive(n) }
	:: atomic { node[n].asked -> node[n].asked = false; node[n].askedUnsure = false; node[n].askedSince = 0 }
	/* The watch brings the latest renewal of another node, or its silence. */
	:: atomic { !node[n].down ->
		if :: m = (n + 1) % NODES :: m = (n + 2) % NODES fi;
		if
		:: m != n -> node[n].heard[m].counts = (board[m].counts && !node[m].down); node[n].heard[m].clock = board[m].clock; node[n].heard[m].since = board[m].since; derive(n)
		:: else
		fi;
		m = 0 }
	/* It plans and claims, by the shared clock. */
	:: atomic { !node[n].down && USABLE(n) ->
		assert(WORKS_BY(n) == 0 || NODES == 1) /* no start early */ }
	/* A right clock that nobody has set stops no node. */
	:: atomic { !node[n].down && node[n].clock == 0 && !node[n].unsure -> assert(!node[n].off) /* liveness */ }
	:: atomic { !node[n].down && deaths < DEATHS -> deaths++; node[n].down = true; node[n].asked = false; node[n].askedUnsure = false; node[n].askedSince = 0 }
	od
}

init {
	atomic {
		byte n, m;
		c_code { now.BREAK = number("FAULT"); now.STEPS = number("STEPS"); now.DEATHS = number("DEATHS"); }
		do
		:: n < NODES ->
			node[n].since = n + 1; board[n].counts = true; board[n].since = n + 1;
			m = 0;
			do :: m < NODES -> node[n].heard[m].counts = true; node[n].heard[m].since = m + 1; m++ :: else -> break od;
			n++
		:: else -> break
		od;
		numbers = NODES;
		n = 0;
		do :: n < NODES -> run member(n); n++ :: else -> break od;
		n = 0; m = 0
	}
}
