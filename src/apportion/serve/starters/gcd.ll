; LLVM IR is taken as it is.
define i32 @gcd(i32 %a, i32 %b) {
entry:
  br label %loop
loop:
  %x = phi i32 [ %a, %entry ], [ %y, %step ]
  %y = phi i32 [ %b, %entry ], [ %rest, %step ]
  %done = icmp eq i32 %y, 0
  br i1 %done, label %end, label %step
step:
  %rest = urem i32 %x, %y
  br label %loop
end:
  ret i32 %x
}
