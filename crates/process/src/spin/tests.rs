use super::*;
use crate::sys::PAGE;

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const SHARED: u64 = 0x60_0000;
const STACK: u64 = 0x70_0000;
const FS: u64 = DATA + 0x800;

/// A page each of code, data, shared memory and stack.
struct Program {
    code: Vec<u8>,
    data: Vec<u8>,
}

impl Pages for Program {
    fn page(&mut self, address: u64) -> Option<Page> {
        let mut bytes = Box::new([0; PAGE as usize]);
        match address {
            CODE => bytes[..self.code.len()].copy_from_slice(&self.code),
            DATA | SHARED => bytes[..self.data.len()].copy_from_slice(&self.data),
            STACK => {}
            _ => return None,
        }
        Some(Page {
            bytes,
            read: true,
            write: address != CODE,
            exec: address == CODE,
            shared: address == SHARED,
        })
    }
}

fn look(code: &[u8], data: &[u8], change: impl Fn(&mut abi::Regs), choice: u64) -> Option<Spin> {
    let mut program = Program {
        code: code.to_vec(),
        data: data.to_vec(),
    };
    let mut regs = abi::Regs {
        rip: CODE,
        rsp: STACK + 0x800,
        rflags: 0x202,
        rdi: DATA,
        rsi: SHARED,
        ..abi::Regs::default()
    };
    change(&mut regs);
    find(&mut program, &regs, FS, BUDGET_MAX, choice)
}

fn spins(code: &[u8]) -> Option<Spin> {
    look(code, &[], |_| (), 0)
}

/// `mov (%rdi),%eax; test %eax,%eax; je -6`
const WAIT: &[u8] = &[0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa];

#[test]
fn a_loop_that_waits_is_found() {
    let spin = spins(WAIT).unwrap();
    assert_eq!((spin.cycle, spin.regs.rip), (3, CODE));
    assert_eq!(spin.writes, []);
    assert_eq!(look(WAIT, &[1], |_| (), 0), None, "it ends: there is no code after it");
    assert!(spins(&[0xeb, 0xfe]).is_some(), "jmp to itself");
    // pause; jmp
    assert_eq!(spins(&[0xf3, 0x90, 0xeb, 0xfc]).unwrap().cycle, 2);
}

#[test]
fn the_place_depends_on_the_choice_and_not_on_where_it_was_interrupted() {
    let at = |rip: u64, choice| look(WAIT, &[], |regs| regs.rip = rip, choice).unwrap().regs.rip;
    for start in [CODE, CODE + 2] {
        let places: Vec<u64> = (0..4).map(|choice| at(start, choice) - CODE).collect();
        assert_eq!(places, [0, 2, 4, 0]);
    }
}

#[test]
fn what_counts_does_not_spin() {
    // inc %rcx before the loop's jump back: it will wrap, but not in our lives
    assert_eq!(spins(&[0x48, 0xff, 0xc1, 0xeb, 0xfb]), None);
    // incl (%rdi); jmp
    assert_eq!(spins(&[0xff, 0x07, 0xeb, 0xfc]), None);
    // A counter of eight bits comes again: inc %cl; jmp
    assert_eq!(spins(&[0xfe, 0xc1, 0xeb, 0xfc]).unwrap().cycle, 512);
}

#[test]
fn a_wait_that_backs_off_is_one_cycle_of_many_rounds() {
    // mov $1000,%ecx; 5: pause; dec %ecx; jne 5b; cmpl $0,(%rdi); je 0b
    let code = [
        0xb9, 0xe8, 3, 0, 0, 0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa, 0x83, 0x3f, 0, 0x74, 0xf0,
    ];
    let spin = spins(&code).unwrap();
    assert_eq!((spin.cycle, spin.regs.rip), (1 + 3000 + 2, CODE));
    // Interrupted within the pauses, it comes to the same place.
    let within = |regs: &mut abi::Regs| (regs.rip, regs.rcx) = (CODE + 5, 77);
    assert_eq!(look(&code, &[], within, 0).unwrap().regs, spin.regs);
    assert_eq!(
        look(&code, &[], within, 1234).unwrap(),
        look(&code, &[], |_| (), 1234).unwrap()
    );
}

#[test]
fn a_lock_that_is_taken_is_waited_for() {
    // mov $1,%eax; xchg %eax,(%rdi); test %eax,%eax; jne 0b
    let code = [0xb8, 1, 0, 0, 0, 0x87, 0x07, 0x85, 0xc0, 0x75, 0xf5];
    assert!(look(&code, &[1], |_| (), 0).is_some());
    // One that is free is taken, and then the code ends.
    assert_eq!(look(&code, &[0], |_| (), 0), None);
    // In shared memory, what does not change may be written.
    let at_shared = |regs: &mut abi::Regs| regs.rdi = SHARED;
    assert!(look(&code, &[1], at_shared, 0).is_some());
    // lock cmpxchg %ecx,(%rdi) with eax 0; jne
    let compare = [0x31, 0xc0, 0xf0, 0x0f, 0xb1, 0x0f, 0x75, 0xf8];
    assert!(look(&compare, &[1], |_| (), 0).is_some());
}

#[test]
fn calls_and_what_they_leave_on_the_stack_belong_to_the_cycle() {
    // call 8f; test %eax,%eax; je 0b ; f: mov %fs:0,%eax; ret
    let mut code = vec![0xe8, 4, 0, 0, 0, 0x85, 0xc0, 0x74, 0xf7];
    code.extend([0x64, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0xc3]);
    let spin = spins(&code).unwrap();
    assert_eq!(spin.regs.rip, CODE);
    // The return address is there, also where it is not on the stack any more.
    assert_eq!(spin.writes, [(STACK + 0x7f8, vec![5]), (STACK + 0x7fa, vec![0x40])]);
    assert_eq!(spin.cycle, 5);
}

#[test]
fn what_is_not_followed_is_taken_for_work() {
    for (what, code) in [
        ("a system call", &[0x0f, 0x05, 0xeb, 0xfc][..]),
        ("the clock", &[0x0f, 0x31, 0xeb, 0xfc]),
        ("a vector register", &[0x66, 0x0f, 0xef, 0xc0, 0xeb, 0xfa]),
        ("the entry of the kernel", &[0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0]),
        ("a string", &[0xf3, 0xaa, 0xeb, 0xfc]),
        ("memory that is not there", &[0x8b, 0x00, 0xeb, 0xfc]),
        // xor $1 into shared memory and back: another address may show it. xorl $1,(%rsi); jmp
        ("a change of shared memory", &[0x83, 0x36, 1, 0xeb, 0xfb]),
        ("a write to code", &[0x83, 0x35, 0, 0, 0, 0, 1, 0xeb, 0xf7]),
    ] {
        assert_eq!(spins(code), None, "{what}");
    }
    // The same in memory of its own comes again.
    assert_eq!(spins(&[0x83, 0x37, 1, 0xeb, 0xfb]).unwrap().cycle, 4);
    let single_step = |regs: &mut abi::Regs| regs.rflags |= 1 << 8;
    assert_eq!(look(WAIT, &[], single_step, 0), None);
}

#[test]
fn memory_is_as_at_the_place() {
    // notb (%rdi); jmp: of the two states at the lowest address the one with the lesser memory is first.
    let code = [0xf6, 0x17, 0xeb, 0xfc];
    for data in [0, 0xff] {
        let at = |choice| look(&code, &[data], |_| (), choice).unwrap();
        let changed = |value: u8| {
            if value == data {
                vec![]
            } else {
                vec![(DATA, vec![value])]
            }
        };
        assert_eq!((at(0).regs.rip, at(0).writes), (CODE, changed(0)));
        assert_eq!((at(1).regs.rip, at(1).writes), (CODE + 2, changed(0xff)));
        assert_eq!((at(2).regs.rip, at(2).writes), (CODE, changed(0xff)));
    }
}

#[test]
fn a_cycle_beyond_the_bound_does_not_count() {
    // mov $N,%ecx; 5: dec %ecx; jne 5b; jmp 0b
    let rounds = |count: u32| {
        let mut code = vec![0xb9];
        code.extend(count.to_le_bytes());
        code.extend([0xff, 0xc9, 0x75, 0xfc, 0xeb, 0xf5]);
        spins(&code)
    };
    assert!(rounds((1 << 17) - 1).is_some(), "just within");
    assert_eq!(rounds(1 << 17), None);
}
